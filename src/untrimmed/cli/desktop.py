"""Detect a desktop session, and open the page in its browser."""

import os
import sys


def has_desktop() -> bool:
    """Whether a browser that this process opens would appear on the user's screen."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_page(address: str) -> bool:
    """Open an address in the user's browser. Return whether a browser was started."""
    import webbrowser

    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False

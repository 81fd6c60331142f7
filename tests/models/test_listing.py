"""The stored list of methods and attachments."""

from untrimmed.models.listing import list_all, registered_listing, stored_listing
from untrimmed.models.registry import ATTACHMENTS, METHODS


def test_the_stored_list_is_that_of_the_registry():
    """If this fails, run: python -m untrimmed.models.listing"""
    stored, registered = stored_listing(), registered_listing()
    classes = METHODS | ATTACHMENTS  # other tests may have registered names, too
    own = {name for name in classes if classes[name].__module__.startswith("untrimmed.models.")}
    assert stored.methods == {name: paper for name, paper in registered.methods.items() if name in own}
    assert stored.attachments == {name: paper for name, paper in registered.attachments.items() if name in own}
    assert stored.training_free == registered.training_free
    assert stored.refused == {name: why for name, why in registered.refused.items() if {*name.split("+")} <= own}


def test_compositions_are_the_pairs_that_are_not_refused():
    listing = stored_listing()
    assert len(listing.compositions) + len(listing.refused) == len(listing.methods) * len(listing.attachments)
    for attachment in listing.attachments:
        names = {f"{method}+{attachment}" for method in listing.methods_of(attachment)}
        assert names == {name for name in listing.compositions if name.endswith(f"+{attachment}")}


def test_names_of_installed_plugins_are_listed(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ["a plug-in"])
    monkeypatch.setitem(METHODS, "mine", METHODS["ms_sl"])
    assert "mine" in list_all(with_plugins=False).methods
    monkeypatch.undo()
    assert "mine" not in list_all(with_plugins=False).methods

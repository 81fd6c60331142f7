"""A trial: one training run in a folder whose name identifies its settings.

Commands reuse finished trials, and an interrupted command continues. The results of a trial are in a small JSON file
beside the folder of its run. If the file contains the results, the folder is not needed. The run may, for example, have
been trained on another machine.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock

from untrimmed.config import flat, read_json, to_plain
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_words
from untrimmed.errors import ConfigError
from untrimmed.files import write_whole
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import attachment_class, model_class, plain_sections
from untrimmed.models.storage import SETTINGS, imports_of
from untrimmed.plugins import PluginModule, has_changed
from untrimmed.precision import Precision
from untrimmed.presets import Preset, choose_preset
from untrimmed.running.run import Run, is_run, open_run, read_config
from untrimmed.training.callbacks import Callback
from untrimmed.training.train import train


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The training of a method on the data set ROOT/DATA.

    - `folder` is the folder of the run. Trials with different settings need different folders.
    - `preset` is a YAML file, or the name of the data set whose preset is used. `overrides` changes the preset by
      dotted keys.
    - With `data_widths`, the model gets the widths of the data set's features.
    """

    method: str
    data: str
    root: Path
    folder: Path
    overrides: Mapping[str, Any]
    preset: str | None = None
    data_widths: bool = False
    precision: Precision = "float32"
    device: str = "auto"

    @cached_property
    def settings(self) -> Preset:
        """All settings. Feature widths come from the preset, so that no features are read.

        Raises: UnknownNameError or ConfigError for a method or setting that does not exist.
        """
        return self._settings(self.overrides)

    @cached_property
    def fitted_overrides(self) -> dict[str, Any]:
        """The overrides. With `data_widths`, they include the widths of the data set's features."""
        if not self.data_widths:
            return dict(self.overrides)
        layout = Layout.at(self.root, self.data)
        widths = {"model.query_dim": open_words(layout).dim, "model.video_dim": open_frames(layout).dim}
        return {**widths, **self.overrides}

    @cached_property
    def fitted_settings(self) -> Preset:
        """All settings of the run."""
        return self._settings(self.fitted_overrides)

    def _settings(self, overrides: Mapping[str, Any]) -> Preset:
        return choose_preset(self.method, self.data, self.preset, overrides)

    def refusal(self) -> str:
        """Return the reason, in one line, why the model cannot have these settings, or "" if they are possible."""
        try:
            self.settings.sizes()
        except ConfigError as error:
            return str(error)
        return ""

    def require_same(self) -> None:
        """Check that a run in the folder has the same settings and was trained with the same plug-ins.

        Settings can differ if a preset has changed. Settings that did not exist when the run was trained are not
        compared.

        Raises: ConfigError if settings or code differ; the message describes the first difference.
        """
        if not is_run(self.folder):
            return
        advice = f"delete the folder and {self.note.name} to train again, or choose another --out"
        if plugin := self._changed_plugin():
            raise ConfigError(
                f"{self.folder}: contains a run that was trained with another version of {plugin.file}; {advice}"
            )
        preset = self.fitted_settings
        sizes = preset.sizes()
        others = {"weights": preset.weights_in(sizes), "train": to_plain(preset.train)}
        expected = flat(plain_sections(sizes) | others)
        stored = flat(to_plain(read_config(self.folder)))
        for key in expected:
            if key in stored and stored[key] != expected[key]:
                raise ConfigError(
                    f"{self.folder}: contains a run with {key} = {stored[key]}, expected {expected[key]}; {advice}"
                )

    def _changed_plugin(self) -> PluginModule | None:
        """Return a plug-in that defines a part of the model and has changed since the run in the folder was trained."""
        if not (self.folder / SETTINGS).is_file():
            return None
        name = ModelName.of(self.method)
        modules = {cls.__module__ for cls in (model_class(name), *map(attachment_class, name.attachments))}
        changed = (plugin for plugin in imports_of(self.folder) if plugin.name in modules and has_changed(plugin))
        return next(changed, None)

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished."""
        return is_run(self.folder) and open_run(self.folder).is_finished

    def train(self, callback: Callback | None = None) -> Run:
        """Return the finished run, and train it first if necessary. If another process trains the run, wait for it."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder.parent / f"{self.folder.name}.lock"):
            if self.is_finished:
                return open_run(self.folder)
            return train(
                self.method,
                data=self.data,
                root=self.root,
                out=self.folder,
                device=self.device,
                precision=self.precision,
                preset=self.preset,
                callback=callback,
                **self.fitted_overrides,
            )

    @property
    def note(self) -> Path:
        """The path of the file with the results."""
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def figures(self) -> dict[str, Any]:
        """The stored results by name; raises ConfigError for a damaged file."""
        return read_json(self.note) if self.note.is_file() else {}

    def measured(self, name: str, measure: Callable[[Run], Any]) -> Any:
        """Return a result of the finished run, and measure and store it first if necessary."""
        figures = self.figures
        if name not in figures:
            figures[name] = measure(open_run(self.folder))
            write_whole(self.note, json.dumps(figures))
        return figures[name]

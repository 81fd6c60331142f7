"""Golden cases of the released programs. Run one with `python -m untrimmed.parity CASE_FOLDER [--method M]`.

A case is a folder with `config.json` and arrays recorded from a released program. Each
method has a file here that computes the same arrays; a new method only registers with `@parity_of("folder-name")`.
"""

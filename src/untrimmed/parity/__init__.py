"""Golden cases of the released programs, run from outside: `python -m untrimmed.parity CASE_FOLDER [--method M]`.

A case is a folder with `config.json` and arrays recorded from a released program. One file a method says how its
arrays are produced here; a new method registers itself with `@parity_of("folder-name")` and touches nothing else.
"""

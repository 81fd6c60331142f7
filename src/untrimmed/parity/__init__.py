"""Compare our implementations with golden cases: arrays recorded from the authors' released programs.

A case is a folder with `config.json`, recorded inputs and recorded outputs. `python -m untrimmed.parity CASE_FOLDER
[--method M]` computes the outputs with our code and compares them with the recorded outputs.

Each method has one file in this package. The file registers a class with `@parity_of("folder-name")`.
"""

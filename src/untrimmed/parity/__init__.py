"""Compare our implementations with golden cases: arrays recorded from the authors' released programs.

A case is a folder with `config.json`, recorded inputs and recorded outputs. `python -m untrimmed.parity CASE_FOLDER
[--method M]` computes the outputs with our code and compares them with the recorded ones. Each method has one file
here. Its class is registered with `@parity_of("folder-name")`.
"""

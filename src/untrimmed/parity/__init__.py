"""Compare this project with golden cases: arrays that were recorded from the authors' released programs.

A case is a folder with `config.json`, recorded inputs and recorded outputs. `python -m untrimmed.parity CASE_FOLDER
[--method M]` computes the outputs from the inputs with this project's code and compares them with the recorded ones.
Each method has one file here, whose class is registered with `@parity_of("folder-name")`.
"""

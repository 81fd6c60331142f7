import subprocess
import sys

import pytest

ALLOCATE_AGAIN = """
import resource
import torch
from untrimmed.running.memory import keep_freed_memory

keep_freed_memory()
for _ in range(16):  # small allocations nibble at the first freed arrays
    torch.zeros(2**24).add_(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    torch.zeros(2**24).add_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_an_array_reuses_the_pages_of_the_previous_one():
    # 64 MB are 16,384 pages, which each new array would otherwise fault in again.
    result = subprocess.run([sys.executable, "-c", ALLOCATE_AGAIN], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 1000

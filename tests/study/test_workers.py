"""The worker processes of a study."""

import subprocess
import sys

import psutil
import pytest

STUDY = """
import os, time
from untrimmed.study.study import workers

pool = workers(1)
print(pool.submit(os.getpid).result(), flush=True)
pool.submit(time.sleep, 600).result()
"""


@pytest.mark.check
def test_workers_end_when_the_study_is_killed():
    with subprocess.Popen([sys.executable, "-c", STUDY], stdout=subprocess.PIPE, text=True) as study:
        worker = psutil.Process(int(study.stdout.readline()))
        study.kill()
    _, alive = psutil.wait_procs([worker], timeout=30)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []

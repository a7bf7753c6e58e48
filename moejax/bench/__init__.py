"""Speed of prompts and of generation, measured and reported as llama-bench does.

Files in reading order: `cases` (what to measure), `session` (random tokens through the engine), `measure`
(repetitions), `model_facts`, `host_facts`, `limit` and `record` (one result), `formats` (md, csv, json, jsonl, sql).
"""

from moejax.bench.cases import BenchCase as BenchCase
from moejax.bench.cases import make_cases as make_cases
from moejax.bench.formats import FORMATS as FORMATS
from moejax.bench.host_facts import read_host_facts as read_host_facts
from moejax.bench.limit import memory_limit as memory_limit
from moejax.bench.measure import measure as measure
from moejax.bench.model_facts import read_model_facts as read_model_facts
from moejax.bench.record import make_record as make_record
from moejax.bench.session import BenchSession as BenchSession

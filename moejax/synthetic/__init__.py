"""Models of real shapes with random weights, to measure speed without a download.

Files in reading order: `shapes` (presets), `mixes` (a type per weight), `vocabulary` and `header` (metadata),
`blocks` (random bytes that are valid weights), `writer` (the file).
"""

from moejax.synthetic.mixes import MIXES as MIXES
from moejax.synthetic.mixes import Mix as Mix
from moejax.synthetic.shapes import SHAPES as SHAPES
from moejax.synthetic.shapes import resize as resize
from moejax.synthetic.writer import WrittenModel as WrittenModel
from moejax.synthetic.writer import write_model as write_model

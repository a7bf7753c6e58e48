"""SentencePiece BPE (`tokenizer.ggml.model = llama`): neighbours merge while the result is a token, best score first.

The `tokenizers` library merges by rank, which cannot say "equal scores: leftmost first", nor merge characters that
are not tokens themselves; hence this implementation.
"""

import heapq

from moejax.tokenizer.vocab import Vocab

ESCAPED_SPACE = "▁"


class SpmEncoder:
    """Text without special tokens to ids."""

    def __init__(self, vocab: Vocab):
        self._ids = vocab.ids
        self._scores = vocab.scores
        self._unk = vocab.special.unk
        # A byte is written <0xXX>; very old files have the bare character instead.
        self._byte_ids = [
            vocab.ids.get(f"<0x{byte:02X}>", vocab.ids.get(chr(byte))) for byte in range(128)
        ] + [vocab.ids.get(f"<0x{byte:02X}>") for byte in range(128, 256)]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of text that holds no special tokens; any space in front must already be there."""
        output: list[int] = []
        for piece in self._merge(text.replace(" ", ESCAPED_SPACE)):
            idx = self._ids.get(piece)
            if idx is not None:
                output.append(idx)
                continue
            byte_ids = (self._byte_ids[byte] for byte in piece.encode())
            output.extend(
                idx for byte_id in byte_ids if (idx := self._unk if byte_id is None else byte_id) is not None
            )
        return output

    def _merge(self, text: str) -> list[str]:
        """Returns the pieces that are left when no two neighbours form a token."""
        ids, scores = self._ids, self._scores
        num_chars = len(text)
        # A piece is named by its first character: `end[i]` is where it ends, 0 once it is part of another piece.
        end = list(range(1, num_chars + 1))
        start_before = list(range(-1, num_chars))
        # Best score first, then leftmost. The last two fields tell whether the pair is still as it was.
        queue: list[tuple[float, int, int, int]] = []
        for left in range(num_chars - 1):
            idx = ids.get(text[left : left + 2])
            if idx is not None:
                queue.append((-scores[idx], left, left + 1, left + 2))
        heapq.heapify(queue)

        def offer(left: int, right: int) -> None:
            idx = ids.get(text[left : end[right]])
            if idx is not None:
                heapq.heappush(queue, (-scores[idx], left, right, end[right]))

        while queue:
            _, left, right, stop = heapq.heappop(queue)
            if end[left] != right or end[right] != stop:
                continue
            end[left], end[right] = stop, 0
            if stop < num_chars:
                start_before[stop] = left
                offer(left, stop)
            if start_before[left] >= 0:
                offer(start_before[left], left)

        pieces = []
        left = 0
        while left < num_chars:
            pieces.append(text[left : end[left]])
            left = end[left]
        return pieces

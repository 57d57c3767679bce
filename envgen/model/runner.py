"""Forward passes of the engine: chunks of prompts, and one token of every running sequence.

Shapes: B sequences, T new tokens, S slots, V vocabulary, N flat tokens, X mixture layers, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envgen.model.modeling import DSAForCausalLM, Output
from envgen.model.paged import CacheView
from envgen.model.prefix import PageStore
from envgen.model.scheduler import Chunk, Sequence


class Runner:
    """Runs a model over the pages of a store, and keeps there what training replays.

    Args:
        model: in evaluation mode.
        store: pages for it.
    """

    def __init__(self, model: DSAForCausalLM, store: PageStore) -> None:
        self._model = model
        self._store = store
        self.prefilled_tokens = self.decoded_tokens = self.steps = 0

    @torch.inference_mode()
    def prefill(self, chunks: Many[Chunk]) -> None:
        """Compute tokens whose logits nobody needs. Chunks are padded on the left, by token 0 at slot 0."""
        width = max(chunk.stop - chunk.start for chunk in chunks)
        ids_BT = np.zeros((len(chunks), width), np.int64)
        slots_BT = np.zeros_like(ids_BT)
        for row, chunk in enumerate(chunks):
            pad = width - (chunk.stop - chunk.start)
            ids_BT[row, pad:] = chunk.sequence.ids[chunk.start : chunk.stop]
            slots_BT[row, pad:] = np.arange(chunk.start, chunk.stop)
        real_BT = np.arange(width) >= width - np.array([[c.stop - c.start] for c in chunks])
        place_BS = self._places([chunk.sequence for chunk in chunks], int(slots_BT.max()) + 1)
        write_BT = np.where(real_BT, np.take_along_axis(place_BS, slots_BT, 1), 0)
        with_topk = any(chunk.sequence.request.params.capture_topk for chunk in chunks)
        out = self._forward(ids_BT, slots_BT, place_BS, write_BT, with_topk, slice(0, 0))
        self._keep(out, slots_BT, write_BT, real_BT)
        self.prefilled_tokens += int(real_BT.sum())

    @torch.inference_mode()
    def decode(self, sequences: Many[Sequence]) -> Tensor:
        """Run each sequence's last id; logits [B, V] of what follows."""
        ids_BT = np.array([[sequence.ids[-1]] for sequence in sequences])
        slots_BT = np.array([[len(sequence.ids) - 1] for sequence in sequences])
        place_BS = self._places(sequences, int(slots_BT.max()) + 1)
        write_BT = np.take_along_axis(place_BS, slots_BT, 1)
        with_topk = any(sequence.request.params.capture_topk for sequence in sequences)
        out = self._forward(ids_BT, slots_BT, place_BS, write_BT, with_topk, slice(-1, None))
        self._keep(out, slots_BT, write_BT, np.ones_like(slots_BT, dtype=bool))
        self.decoded_tokens += len(sequences)
        self.steps += 1
        return out.logits[:, -1]

    def _places(self, sequences: Many[Sequence], num_slots: int) -> NDArray[np.int64]:
        """Pool row of each slot: [B, S]; rows of page 0 past a sequence's end."""
        size = self._store.cache.page_tokens
        num_pages = self._store.cache.pages_for(num_slots)
        pages_Bn = np.zeros((len(sequences), num_pages), np.int64)
        for row, sequence in enumerate(sequences):
            held = sequence.pages[:num_pages]
            pages_Bn[row, : len(held)] = held
        places = pages_Bn[:, :, None] * size + np.arange(size)
        return places.reshape(len(sequences), -1)[:, :num_slots]

    def _forward(
        self,
        ids_BT: NDArray[np.int64],
        slots_BT: NDArray[np.int64],
        place_BS: NDArray[np.int64],
        write_BT: NDArray[np.int64],
        with_topk: bool,
        keep: slice,
    ) -> Output:
        ids, slots, place, write = (
            torch.from_numpy(np.ascontiguousarray(x)).to(self._model.device)
            for x in (ids_BT, slots_BT, place_BS, write_BT)
        )
        view = CacheView(self._store.cache, place, write)
        output: Output = self._model(
            ids, view=view, slots_BT=slots, capture_topk=with_topk, keep=keep
        )
        return output

    def _keep(
        self,
        out: Output,
        slots_BT: NDArray[np.int64],
        write_BT: NDArray[np.int64],
        real_BT: NDArray[np.bool_],
    ) -> None:
        """Put routing and key sets of the real tokens beside their pages."""
        if out.routing_BTXA is not None:
            self._store.put_routing(write_BT[real_BT], out.routing_BTXA.cpu().numpy()[real_BT])
        limit = self._store.index_topk
        late_BT = real_BT & (slots_BT >= limit)
        if out.topk is None or not late_BT.any():
            return
        kept_NLK = torch.stack(out.topk, 2).cpu().numpy()[late_BT]
        for row, kept_LK in zip(write_BT[late_BT], kept_NLK, strict=True):
            self._store.put_topk(int(row), kept_LK)

"""Forward passes of the engine: chunks of prompts, and one token of every running sequence.

Shapes: B sequences, T new tokens, S slots, V vocabulary, N flat tokens, X mixture layers, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envgen.model.decode import Decoder, fusing_pays
from envgen.model.modeling import DSAForCausalLM, Output
from envgen.model.paged import CacheView
from envgen.model.prefix import PageStore
from envgen.model.scheduler import PrefillChunk, Sequence


class ModelRunner:
    """Runs a model over the pages of a store, and keeps there what training replays.

    Args:
        model: in evaluation mode.
        store: pages for it.
        fused: decode by prepared copies of the weights where that pays; see ``decode``.
    """

    def __init__(self, model: DSAForCausalLM, store: PageStore, fused: bool = True) -> None:
        self._model = model
        self._store = store
        known = all(layer.fusible for layer in model.layers())
        fused = fused and known and model.dtype is torch.float32 and fusing_pays(model.config)
        self._decoder = Decoder(model, store.cache) if fused else None
        self._table = PageTable(store)
        self.prefilled_tokens = self.decoded_tokens = self.steps = 0

    @torch.inference_mode()
    def prefill(self, chunks: Many[PrefillChunk]) -> None:
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

    def refresh(self) -> None:
        """Take note of changed weights."""
        if self._decoder is not None:
            self._decoder.refresh()

    @torch.inference_mode()
    def decode(self, sequences: list[Sequence]) -> Tensor:
        """Run each sequence's last id; logits [B, V] of what follows."""
        self.decoded_tokens += len(sequences)
        self.steps += 1
        ids_B = np.array([sequence.ids[-1] for sequence in sequences])
        slots_B = np.array([len(sequence.ids) - 1 for sequence in sequences])
        with_topk = any(sequence.request.params.capture_topk for sequence in sequences)
        if self._decoder is None:
            return self._decode_plainly(sequences, ids_B, slots_B, with_topk)
        longest = int(slots_B.max()) + 1
        pages_Bn = self._table.pages(sequences, longest)
        ids, slots, pages = self._moved(ids_B, slots_B, pages_Bn)
        out = self._decoder.run(ids, slots, pages, longest)
        size = self._store.cache.page_tokens
        rows_B = pages_Bn[np.arange(len(slots_B)), slots_B // size] * size + slots_B % size
        self._keep_routing(out.routing_BXA, rows_B)
        if with_topk and out.topk is not None:
            self._keep_topk(out.topk, rows_B, slots_B)
        return out.logits_BV

    def _decode_plainly(
        self,
        sequences: Many[Sequence],
        ids_B: NDArray[np.int64],
        slots_B: NDArray[np.int64],
        with_topk: bool,
    ) -> Tensor:
        """The same by the model's own forward pass."""
        slots_B1 = slots_B[:, None]
        place_BS = self._places(sequences, int(slots_B.max()) + 1)
        write_B1 = np.take_along_axis(place_BS, slots_B1, 1)
        out = self._forward(ids_B[:, None], slots_B1, place_BS, write_B1, with_topk, slice(0, 1))
        self._keep(out, slots_B1, write_B1, np.ones_like(slots_B1, dtype=bool))
        return out.logits[:, 0]

    def _places(self, sequences: Many[Sequence], num_slots: int) -> NDArray[np.int64]:
        """Pool row of each slot: [B, S]; rows of page 0 past a sequence's end."""
        size = self._store.cache.page_tokens
        pages_Bn = PageTable(self._store).pages(sequences, num_slots)
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
        ids, slots, place, write = self._moved(ids_BT, slots_BT, place_BS, write_BT)
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
        real = torch.from_numpy(real_BT).to(self._model.device)
        if out.routing_BTXA is not None:
            self._keep_routing(out.routing_BTXA[real], write_BT[real_BT])
        if out.topk is not None:
            self._keep_topk([kept[real] for kept in out.topk], write_BT[real_BT], slots_BT[real_BT])

    def _keep_routing(self, routing_NXA: Tensor | None, rows_N: NDArray[np.int64]) -> None:
        if routing_NXA is not None:
            self._store.put_routing(rows_N, routing_NXA.cpu().numpy())

    def _keep_topk(
        self, topk: Many[Tensor], rows_N: NDArray[np.int64], slots_N: NDArray[np.int64]
    ) -> None:
        """Key sets of the tokens that may have left something out; see ``PageStore.topk``."""
        late = np.flatnonzero(slots_N >= self._store.index_topk)
        if not len(late):
            return
        kept_NLK = torch.stack(list(topk), 1)[torch.from_numpy(late).to(self._model.device)]
        for row, kept_LK in zip(rows_N[late], kept_NLK.cpu().numpy(), strict=True):
            self._store.put_topk(int(row), kept_LK)

    def _moved(self, *arrays: NDArray[Any]) -> tuple[Tensor, ...]:
        """As tensors where the model is."""
        device = self._model.device
        return tuple(torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in arrays)


class PageTable:
    """The pages of a batch of sequences as an array, kept up to date from step to step."""

    def __init__(self, store: PageStore) -> None:
        self._cache = store.cache
        self._held: list[list[int]] = []
        self._counts: list[int] = []
        self._pages_Bn = np.zeros((0, 0), np.int64)

    def pages(self, sequences: Many[Sequence], longest: int) -> NDArray[np.int64]:
        """The pages that hold the first ``longest`` slots: [B, n]; 0 past a sequence's end."""
        num_pages = self._cache.pages_for(longest)
        # A sequence that gave up its pages has a new list.
        same = len(sequences) == len(self._held) and all(
            sequence.pages is held for sequence, held in zip(sequences, self._held, strict=True)
        )
        if not same or num_pages > self._pages_Bn.shape[1]:
            # Room for a while, so that the table is seldom made anew.
            self._pages_Bn = np.zeros((len(sequences), 2 * num_pages), np.int64)
            self._held = [sequence.pages for sequence in sequences]
            self._counts = [0] * len(sequences)
        width = self._pages_Bn.shape[1]
        for row, held in enumerate(self._held):
            known, count = self._counts[row], min(len(held), width)
            if count != known:
                self._pages_Bn[row, known:count] = held[known:count]
                self._counts[row] = count
        return self._pages_Bn[:, :num_pages]

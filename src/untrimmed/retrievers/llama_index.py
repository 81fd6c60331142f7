"""A LlamaIndex retriever of moments: the extra `llama-index` installs its packages."""

import asyncio
from functools import partial

from llama_index.core.callbacks import CallbackManager
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from untrimmed.retrievers.documents import Source, find_documents
from untrimmed.search.library import Library
from untrimmed.search.query.query import Filters, GroupBy


class MomentRetriever(BaseRetriever):
    """Finds moments for a sentence. The text of a node is the file name and the span; `metadata` has the details.

    `aretrieve` searches in a separate thread. Raises the errors of `find_documents`.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        token: str | None = None,
        limit: int = 5,
        min_confidence: float | None = None,
        filters: Filters = Filters(),
        group_by: GroupBy = "video",
        callback_manager: CallbackManager | None = None,
    ) -> None:
        """Choose where and what to search.

        Args:
            source: A library, or the address of a service (`http://127.0.0.1:8765`); by default the user's library.
            token: The token of the service, if it requires one.
            limit: Maximum number of nodes.
            min_confidence: Smallest confidence of a node, from 0 to 1.
            filters: Which videos to search.
            group_by: `video` for the best moment of each video, `moment` for all moments.
            callback_manager: Passed to LlamaIndex.
        """
        super().__init__(callback_manager)
        self._find = partial(
            find_documents,
            Library() if source is None else source,
            token=token,
            limit=limit,
            min_confidence=min_confidence,
            filters=filters,
            group_by=group_by,
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(
                node=TextNode(id_=document.document_id, text=document.text, metadata=document.metadata),
                score=document.metadata["score"],
            )
            for document in self._find(query_bundle.query_str)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

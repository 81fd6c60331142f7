"""A LangChain retriever of moments: `pip install 'untrimmed[langchain]'`."""

from __future__ import annotations

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from untrimmed.retrievers.documents import Source, find_documents
from untrimmed.search.library import Library
from untrimmed.search.query.query import Filters, GroupBy


class MomentRetriever(BaseRetriever):
    """Finds moments for a sentence, as documents: the file's name and the span, the rest in `metadata`.

    `ainvoke` searches in a thread of its own, so that other work goes on. Errors are those of the library.

    Attributes:
        source: A library, or the address of a service (`http://127.0.0.1:8765`); by default the user's own library.
        token: What the service wants to be told, if anything.
        limit: How many documents at most.
        min_confidence: Leave out those whose chance to hold the sentence is smaller, from 0 to 1.
        filters: Which videos are searched at all.
        group_by: A document is the best moment of a video, or with `moment` any.
    """

    source: Source = Field(default_factory=Library)
    token: str | None = Field(default=None, repr=False)
    limit: int = 5
    min_confidence: float | None = None
    filters: Filters = Filters()
    group_by: GroupBy = "video"

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        found = find_documents(
            self.source,
            query,
            token=self.token,
            limit=self.limit,
            min_confidence=self.min_confidence,
            filters=self.filters,
            group_by=self.group_by,
        )
        return [Document(id=one.document_id, page_content=one.text, metadata=one.metadata) for one in found]

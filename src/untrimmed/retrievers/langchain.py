"""A LangChain retriever of moments: the extra `langchain` installs its packages."""

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from untrimmed.retrievers.documents import Source, find_documents
from untrimmed.search.library import Library
from untrimmed.search.query.query import Filters, GroupBy


class MomentRetriever(BaseRetriever):
    """Finds moments for a sentence. The text of a document is the file name and the span; `metadata` has the details.

    `ainvoke` searches in a separate thread. Raises the errors of `find_documents`.

    Attributes:
        source: A library, or the address of a service (`http://127.0.0.1:8765`); by default the user's library.
        token: The token of the service, if it requires one.
        limit: Maximum number of documents.
        min_confidence: Smallest confidence of a document, from 0 to 1.
        filters: Which videos to search.
        group_by: `video` for the best moment of each video, `moment` for all moments.
    """

    source: Source = Field(default_factory=Library)
    token: str | None = Field(default=None, repr=False)
    limit: int = 5
    min_confidence: float | None = None
    filters: Filters = Filters()
    group_by: GroupBy = "video"

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        documents = find_documents(
            self.source,
            query,
            token=self.token,
            limit=self.limit,
            min_confidence=self.min_confidence,
            filters=self.filters,
            group_by=self.group_by,
        )
        return [
            Document(id=document.document_id, page_content=document.text, metadata=document.metadata)
            for document in documents
        ]

"""Moments as documents of LangChain and LlamaIndex, from a library and from a service on a socket."""

import asyncio

import pytest

import untrimmed
from tests.apart import apart
from tests.served import served
from tests.toy import ToyEncoder, write_clip
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import ConfigError, UnknownNameError, UntrimmedError
from untrimmed.retrievers.documents import find_documents
from untrimmed.search import library as library_module
from untrimmed.search.query.query import Filters
from untrimmed.server.access import Access
from untrimmed.server.app import create_app

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieved")
    (folder / "videos").mkdir()
    write_clip(folder / "videos" / "flag.mp4", ["red", "white", "green", "white"])
    write_clip(folder / "videos" / "sea.mp4", ["blue", "blue"])
    library = untrimmed.open(folder / "library")
    with pytest.MonkeyPatch.context() as patch:  # it keeps the encoder that indexed the library
        patch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(ToyEncoder(), None))
        library.index(folder / "videos")
    return library


@pytest.fixture(scope="module")
def address(library):
    """The address of a service of the library that requires a token."""
    with served(create_app(library, access=Access.for_host("127.0.0.1", TOKEN))) as at:
        yield at


def langchain(source, **options):
    """The documents of LangChain's retriever, sync and async: text, metadata and score."""
    module = pytest.importorskip("untrimmed.retrievers.langchain", reason="untrimmed[langchain] is not installed")
    retriever = module.MomentRetriever(source=source, **options)

    def rows(documents):
        return [(one.id, one.page_content, one.metadata, one.metadata["score"]) for one in documents]

    return lambda text: (rows(retriever.invoke(text)), rows(apart(lambda: asyncio.run(retriever.ainvoke(text)))))


def llama_index(source, **options):
    """The same for LlamaIndex's retriever."""
    module = pytest.importorskip("untrimmed.retrievers.llama_index", reason="untrimmed[llama-index] is not installed")
    retriever = module.MomentRetriever(source, **options)

    def rows(nodes):
        return [(one.node.node_id, one.node.text, one.node.metadata, one.score) for one in nodes]

    return lambda text: (rows(retriever.retrieve(text)), rows(apart(lambda: asyncio.run(retriever.aretrieve(text)))))


@pytest.mark.parametrize("framework", [langchain, llama_index])
def test_hits_of_a_library_and_of_its_service_become_documents(framework, library, address):
    (hit,) = library.search("green", limit=1)
    documents, async_documents = framework(library, limit=1)("green")
    ((document_id, text, metadata, score),) = documents
    assert async_documents == documents
    assert text == f"flag.mp4, {hit.start_s:.1f} to {hit.end_s:.1f} s"
    assert 3.5 <= metadata["start_s"] < metadata["end_s"] <= 6.5
    assert metadata["video"] == str(hit.video)
    assert {"video_id", "score", "confidence", "duration_s"} < metadata.keys()
    assert score == metadata["score"] == hit.score
    assert document_id.startswith(hit.video_id)
    for answer in framework(address, limit=1, token=TOKEN)("green"):
        assert answer == documents


@pytest.mark.parametrize("framework", [langchain, llama_index])
def test_filters_grouping_and_limits_reach_the_search(framework, library, address):
    for source in (library, address):
        few, _ = framework(source, filters=Filters(max_duration_s=5), token=TOKEN)("green")
        assert [text.partition(",")[0] for _, text, _, _ in few] == ["sea.mp4"]
        flat, _ = framework(source, group_by="moment", limit=3, token=TOKEN)("white")
        assert sum(text.startswith("flag.mp4") for _, text, _, _ in flat) >= 2
        with pytest.raises(ConfigError):
            framework(source, min_confidence=0.5, token=TOKEN)("green")


@pytest.mark.parametrize(
    ("place", "token", "line"),
    [
        ("127.0.0.1:8765", None, "127.0.0.1:8765"),
        ("ftp://127.0.0.1", None, "ftp://127.0.0.1"),
        ("http://[::1", None, r"http://\[::1"),
        ("http://127.0.0.1:1", None, "127.0.0.1:1"),
        ("{address}", None, "token"),
        ("{address}/no/such/path", TOKEN, "Method Not Allowed"),
    ],
)
def test_a_missing_or_refusing_service_is_reported_in_one_line(address, place, token, line):
    with pytest.raises(UntrimmedError, match=line) as error:
        find_documents(place.format(address=address), "green", token=token)
    assert len(str(error.value).splitlines()) == 1


def test_a_service_raises_the_errors_of_the_library(address, library):
    wrong = Filters(within="/nowhere")
    for source in (address, library):
        with pytest.raises(UnknownNameError, match="/nowhere"):
            find_documents(source, "green", token=TOKEN, filters=wrong)


@pytest.mark.parametrize(
    ("status", "answer", "line"),
    [
        (200, {"ok": True}, "8765"),
        (200, {"hits": [1], "warnings": [], "partial": False}, "8765"),
        (422, {"error": "ConfigError"}, "422"),
        (500, {}, "500"),
    ],
)
def test_another_program_at_the_address_is_reported_in_one_line(monkeypatch, status, answer, line):
    monkeypatch.setattr("untrimmed.server.client._send", lambda *_: (status, answer))
    with pytest.raises(UntrimmedError, match=line) as error:
        find_documents("http://127.0.0.1:8765", "green")
    assert len(str(error.value).splitlines()) == 1

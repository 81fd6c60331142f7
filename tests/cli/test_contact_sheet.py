"""`untrimmed search --html` writes one page with pictures."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from tests.search.store.test_table import SETTINGS
from tests.toy import write_clip
from untrimmed.cli.contact_sheet import write_sheet
from untrimmed.search.query.hits import Hit
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import Moment


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page_has_pictures_and_links_to_the_moments(run, videos, tmp_path):
    run("index", videos, "--no-thumbnails")
    code, out, err = run("search", "green", "--html", tmp_path / "hits.html", "--limit", "1")
    assert str(tmp_path / "hits.html") in err
    assert code == 0
    assert "flag.mp4" in out
    page = Page((tmp_path / "hits.html").read_text(encoding="utf-8"))
    links, images = page.all("a"), page.all("img")
    assert len(links) == len(images) >= 1
    assert re.fullmatch(r"file:///.*/videos/flag\.mp4#t=\d+\.\d{3},\d+\.\d{3}", links[0]["href"])
    picture = Image.open(io.BytesIO(base64.b64decode(images[0]["src"].partition(",")[2])))
    assert np.asarray(picture).reshape(-1, 3).mean(axis=0).argmax() == 1  # green
    assert not page.all("script")


def test_hostile_names_and_sentences_are_escaped(run, videos, tmp_path):
    write_clip(videos / "<script>alert(1)<!--\"'.mp4", ["yellow"])
    run("index", videos)
    run("search", "yellow </h1><script>", "--html", tmp_path / "hits.html")
    page = Page((tmp_path / "hits.html").read_text(encoding="utf-8"))
    assert not page.all("script")
    assert "yellow </h1><script>" in "".join(page.texts)
    assert "<script>alert(1)<!--\"'.mp4" in "".join(page.texts)


def test_each_moment_is_followed_by_its_then_moment(run, videos, tmp_path):
    run("index", videos)
    run("search", "red", "--then", "green", "--html", tmp_path / "hits.html", "--limit", "1", "--moments", "1")
    page = Page((tmp_path / "hits.html").read_text(encoding="utf-8"))
    first, then = ([float(x) for x in link["href"].partition("#t=")[2].split(",")] for link in page.all("a"))
    assert first[1] <= then[0]
    assert sum("red" in text and "green" in text for text in page.texts) >= 1


def test_confidences_follow_the_scores(tmp_path):
    moment = Moment(1.0, 2.0, 0.5)
    hits = [
        Hit(tmp_path / "gone.mp4", "0" * 16, 1.0, 2.0, 0.5, 9.0, (moment,), confidence=some) for some in (0.72, None)
    ]
    VideoIndex(tmp_path, create=True).write_settings(SETTINGS)
    write_sheet(tmp_path / "hits.html", "red", hits, tmp_path)
    texts = Page((tmp_path / "hits.html").read_text(encoding="utf-8")).texts
    assert ["0.500, 72%" in texts, "0.500" in texts] == [True, True]


def test_pictures_are_stored_ones_and_need_no_file(run, videos, tmp_path):
    run("index", videos)
    (videos / "flag.mp4").unlink()
    run("search", "green", "--html", tmp_path / "hits.html", "--limit", "1")
    images = Page((tmp_path / "hits.html").read_text(encoding="utf-8")).all("img")
    assert all(image["src"].startswith("data:image/webp;") for image in images)
    picture = Image.open(io.BytesIO(base64.b64decode(images[0]["src"].partition(",")[2]))).convert("RGB")
    assert np.asarray(picture).reshape(-1, 3).mean(axis=0).argmax() == 1  # green


def test_a_deleted_video_is_listed_without_a_picture(run, videos, tmp_path):
    run("index", videos, "--no-thumbnails")
    (videos / "flag.mp4").unlink()
    assert run("search", "green", "--html", tmp_path / "hits.html")[0] == 0
    page = Page((tmp_path / "hits.html").read_text(encoding="utf-8"))
    assert "flag.mp4" in "".join(page.texts)
    assert {"class": "none"} in page.all("span")

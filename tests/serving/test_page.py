"""The page to try models in, as a browser runs it."""

import re

import browser
import pytest
from server_process import Client, in_thread, write_small
from test_openai_front import Echo, Letters

from lamina.serving.bounds import Bounds
from lamina.serving.served_models import TextModel, opened

pytestmark = pytest.mark.skipif(
    browser.found() is None, reason="there is no chromium to look at the page with"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "small.lam"
    write_small(path)
    bounds = Bounds()
    return [opened("small", path, bounds), TextModel("echo", Echo()), TextModel("letters", Letters())]


def submitted(number, text=None):
    """A script that sends the form of the so manieth model."""
    setting = "" if text is None else f"form.querySelector('textarea').value = {text!r};"
    finding = f"const form = document.querySelectorAll('#models form')[{number}]"
    return f"{{{finding}; {setting} form.requestSubmit();}}"


def test_each_kind_of_model_is_tried_in_the_page(models, tmp_path):
    with in_thread(models) as port, browser.Browser(f"http://localhost:{port}/") as page:
        assert page.wait("document.querySelectorAll('#models section').length") == 3
        assert page.value("document.getElementById('facts').innerText") == "3 models"
        shown = page.value("document.querySelector('#models section').innerText")
        assert "f32[batch, 8]" in shown and "up to 32 rows together" in shown
        page.value(submitted(0))
        answer = page.wait("document.querySelectorAll('pre')[0].textContent.match(/outputs.*/)?.[0]")
        assert re.fullmatch(r'outputs":\{"output":\[\[[-\d.e,]+\]\]\}\}', answer)
        page.value(submitted(0, '{"inputs": {"input": [[1]]}}'))
        page.wait("document.querySelectorAll('pre')[0].className === 'bad'")
        told = page.value("document.querySelectorAll('pre')[0].textContent")
        assert told == "400: input 'input' is f32[batch, 8]: f32[1, 1] came"
        page.value(submitted(1, "hello <b>you</b>"))
        page.wait("document.querySelectorAll('.turn span')[1]?.textContent.length > 500")
        said = page.value("document.querySelectorAll('.turn span')[1].textContent")
        assert said.startswith("user: hello <b>you</b> user: hello")
        page.value(submitted(2, "abba"))
        page.wait("document.querySelectorAll('pre')[2].textContent === '3 numbers\\n[2,2,0]'")
        page.picture(tmp_path / "page.png")
        # Of the refused request alone, and of no policy that was broken.
        texts = [c.get("entry", {}).get("text", str(c)) for c in page.complaints]
        assert all("status of 400" in text for text in texts), texts
        assert page.value("document.querySelectorAll('[src], link').length") == 0


def test_the_page_asks_for_a_token(models):
    with (
        in_thread(models[:1], tokens=("secret",)) as port,
        browser.Browser(f"http://127.0.0.1:{port}/") as page,
    ):
        page.wait("document.getElementById('ask') && true")
        page.wait("getComputedStyle(document.getElementById('ask')).display === 'block'")
        for shown, count in (("wrong", 0), ("secret", 1)):
            page.value(f"document.getElementById('shown').value = '{shown}'")
            page.value("document.getElementById('token').requestSubmit()")
            page.wait(f"document.querySelectorAll('#models section').length === {count}")
        assert page.value("getComputedStyle(document.getElementById('ask')).display") == "none"


def test_no_other_script_runs_in_the_page(models):
    with in_thread(models[:1]) as port:
        client = Client(port)
        policy = client("GET", "/")[1]["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        with browser.Browser(f"http://localhost:{port}/") as page:
            page.wait("document.querySelectorAll('#models section').length")
            page.value("window.made = document.createElement('script'); made.textContent = 'window.hit = 1'")
            page.value("document.body.append(made)")
            assert page.value("window.hit === undefined")

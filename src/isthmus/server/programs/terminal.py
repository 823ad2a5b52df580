#!/usr/bin/env python3
"""A shell in the browser. Standard library only: it runs in jobs, with whatever Python is there.

The page follows `/output` (server-sent events) and posts what is typed to `/input`. It listens on the loopback of the
job, where nobody else connects; the proxy decides who may. The shell goes on when a page is closed; the next one
is shown the end of what was printed.
"""

from __future__ import annotations

import base64
import os
import pty
import shutil
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEPT = 256 * 1024
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Terminal</title>
<style>body{margin:0;background:#111;color:#ddd}pre{margin:0;padding:.6rem;min-height:100vh;box-sizing:border-box;
font:14px/1.35 monospace;white-space:pre-wrap;word-break:break-all;outline:none}pre:after{content:"\\2588"}</style>
<pre id="screen" tabindex="0" role="textbox" aria-label="Terminal"></pre><script>
const screen=document.getElementById("screen");let lines=[""],column=0;const decoder=new TextDecoder();
function show(text){text=text.replace(/\\x1b\\[[0-9;?]*[A-Za-z]|\\x1b\\][^\\x07]*\\x07|\\x1b./g,"");
for(const c of text){let last=lines.length-1;if(c==="\\n"){lines.push("");column=0}else if(c==="\\r")column=0;
else if(c==="\\b")column=Math.max(0,column-1);else if(c==="\\x07"){}else{const line=lines[last].padEnd(column);
lines[last]=line.slice(0,column)+c+line.slice(column+1);column++}}
lines=lines.slice(-5000);screen.textContent=lines.join("\\n");scrollTo(0,document.body.scrollHeight)}
const source=new EventSource("output");source.addEventListener("begin",()=>{lines=[""];column=0;screen.textContent=""});
source.onmessage=e=>show(decoder.decode(Uint8Array.from(atob(e.data),c=>c.charCodeAt(0)),{stream:true}));
let queue=Promise.resolve();
function type(text){queue=queue.then(()=>fetch("input",{method:"POST",body:text}).catch(()=>{}))}
const keys={Enter:"\\r",Backspace:"\\x7f",Tab:"\\t",Escape:"\\x1b",ArrowUp:"\\x1b[A",ArrowDown:"\\x1b[B",
ArrowRight:"\\x1b[C",ArrowLeft:"\\x1b[D",Delete:"\\x1b[3~",Home:"\\x1b[H",End:"\\x1b[F"};
document.addEventListener("keydown",e=>{if(e.metaKey||e.altKey)return;let text=keys[e.key];
if(e.ctrlKey){if(e.key.length!==1||e.key==="v")return;text=String.fromCharCode(e.key.toUpperCase().charCodeAt(0)&31)}
else if(!text&&e.key.length===1)text=e.key;if(text){e.preventDefault();type(text)}});
document.addEventListener("paste",e=>{type(e.clipboardData.getData("text"));e.preventDefault()});screen.focus();
</script></html>"""


class BrowserShell:
    """A shell, and the end of what it printed."""

    def __init__(self) -> None:
        self.kept = b""
        self.total = 0
        self.news = threading.Condition()
        pid, self.master = pty.fork()
        if not pid:
            os.environ["TERM"] = "dumb"
            program = shutil.which("bash") or "/bin/sh"
            os.execv(program, [program])  # noqa: S606

    def follow(self) -> None:
        """Keep what it prints, until it ends; then so does the program."""
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            with self.news:
                self.kept = (self.kept + data)[-KEPT:]
                self.total += len(data)
                self.news.notify_all()
        os.kill(os.getpid(), signal.SIGTERM)

    def after(self, seen: int) -> tuple[int, bytes]:
        """What was printed since so many bytes, and how many there are now; waits a while for something."""
        with self.news:
            self.news.wait_for(lambda: self.total > seen, timeout=15)
            missing = min(self.total - seen, len(self.kept))
            return self.total, self.kept[len(self.kept) - missing :]


class Handler(BaseHTTPRequestHandler):
    """Page, output and input."""

    shell: BrowserShell

    def do_GET(self) -> None:
        """The page, or what the shell prints."""
        if self.path == "/":
            self._answer(200, "text/html; charset=utf-8", PAGE.encode())
        elif self.path == "/output":
            self._stream()
        else:
            self._answer(404, "text/plain", b"not found\n")

    def do_POST(self) -> None:
        """What was typed."""
        size = self.headers.get("Content-Length", "0")
        if self.path != "/input" or not size.isdigit() or int(size) > KEPT:
            self._answer(400, "text/plain", b"not understood\n")
            return
        rest = memoryview(self.rfile.read(int(size)))
        while rest:
            rest = rest[os.write(self.shell.master, rest[:1024]) :]
        self._answer(204, "text/plain", b"")

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        seen = max(0, self.shell.total - len(self.shell.kept))
        try:
            self.wfile.write(b"event: begin\ndata: \n\n")
            while True:
                seen, data = self.shell.after(seen)
                self.wfile.write(b"data: " + base64.b64encode(data) + b"\n\n" if data else b":\n\n")
        except OSError:
            return

    def _answer(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Requests are not logged."""


def main() -> None:
    """Serve until the shell ends."""
    Handler.shell = BrowserShell()
    threading.Thread(target=Handler.shell.follow, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()


if __name__ == "__main__":
    main()

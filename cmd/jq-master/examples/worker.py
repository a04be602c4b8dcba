#!/usr/bin/env python3
"""A worker that jq-master pushes jobs to. It needs msgpack (Debian: python3-msgpack).

    python3 worker.py [http://127.0.0.1:9996]
"""
import http.server
import sys
import threading
import traceback
import urllib.error
import urllib.request

import msgpack

MASTER = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:9996"
MAX_JOBS = 4


def greet(argument):
    return "hello " + argument["whom"]


HANDLERS = {"greet": greet}


def ask(path, body, headers={}):
    headers = {"Content-Type": "application/msgpack", **headers}
    request = urllib.request.Request(MASTER + path, msgpack.packb(body), headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.read()


def run(job):
    report = {"job_id": job["job_id"], "attempt": job["attempt"]}
    try:
        report.update(type="success", result=HANDLERS[job["name"]](job["argument"]))
    except Exception as e:
        report.update(type="failure", reason="other", should_retry=True,
                      message=str(e), error=traceback.format_exc())
    try:
        ask("/done", report, {"worker-id": worker_id})
    except urllib.error.HTTPError as e:
        print("the report was refused:", e, file=sys.stderr)  # for example if it is late


class Pushed(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        job = msgpack.unpackb(body, strict_map_key=False)
        known = self.path == "/worker-job" and job["name"] in HANDLERS
        if known:
            threading.Thread(target=run, args=(job,), daemon=True).start()
        self.send_response(202 if known else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pushed)
reply = ask("/worker", {"name": "worker.py", "max_jobs": MAX_JOBS,
                        "names": list(HANDLERS), "port": server.server_port})
worker_id = msgpack.unpackb(reply)["worker_id"]
print("registered as", worker_id, flush=True)
server.serve_forever()

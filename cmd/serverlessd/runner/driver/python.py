# Runs the jobs of a Python context. Frames come in on descriptor 3: a line of
# JSON, then as many bytes as its size says. Each except "code" is answered on
# standard output: a line with the secret, a status and a size, then the data.
def main():
    import ast, json, os, sys, traceback, types

    module = types.ModuleType("handler")
    sys.modules["handler"] = module
    source = os.fdopen(3, "rb")
    os.set_inheritable(3, False)
    out = os.dup(1)  # the handler may close or replace its own
    process = os.getpid()
    sources = {}

    def answer(status, data=b""):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        left = b"\n%s %d %d\n%s" % (secret, status, len(data), data)
        while left:
            left = left[os.write(out, left):]

    def hook(text):
        code = compile(text, "<hook>", "exec")
        return lambda: exec(code, module.__dict__)

    def function(text):
        tree = ast.parse("def handler(payload, job): pass")
        tree.body[0].body = ast.parse(text, "<body>").body or tree.body[0].body
        names = {}
        # The function uses the module's globals, which do not contain its own name.
        exec(compile(tree, "<body>", "exec"), module.__dict__, names)
        return names["handler"]

    def compiled(n, how):
        if isinstance(sources[n], str):
            sources[n] = how(sources[n])
        return sources[n]

    def encoded(data):
        if data is None:
            return b""
        if isinstance(data, (bytes, bytearray)):
            return bytes(data)
        return (data if isinstance(data, str) else json.dumps(data)).encode("utf-8", "surrogatepass")

    def result(r):
        if r is None:
            return 200, b""
        if isinstance(r, (int, float)) and not isinstance(r, bool):
            return r, b""
        if isinstance(r, (str, bytes, bytearray)):
            return 200, encoded(r)
        if isinstance(r, dict) and ("status" in r or "data" in r):
            return r.get("status", 200), encoded(r.get("data"))
        raise TypeError("the handler must return nothing, a number, a string or a dict with status and data")

    def run(frame, raw):
        try:
            if frame["do"] == "hook":
                compiled(frame["code"], hook)()
                status, data = 200, b""
            else:
                job = {"id": frame["id"], "type": frame["type"], "tries": frame["tries"], "raw": raw}
                status, data = result(compiled(frame["code"], function)(raw.decode("utf-8", "replace"), job))
            if not isinstance(status, (int, float)) or status % 1 or abs(status) >= 1 << 53:
                status, data = 500, data or encoded("status %s counts as 500" % repr(status))
        except BaseException as e:
            if os.getpid() == process:
                traceback.print_exc()
            status, data = 500, (str(e) or type(e).__name__).encode("utf-8", "replace")
        if os.getpid() != process:  # a child that the handler forked has returned here
            os._exit(0)
        answer(int(status), data)

    while head := source.readline():
        frame = json.loads(head)
        raw = source.read(frame["size"])
        if frame["do"] == "code":
            sources[frame["code"]] = raw.decode("utf-8", "replace")
        elif frame["do"] == "hello":
            secret = frame["secret"].encode()
            answer(200)
        else:
            run(frame, raw)


main()

# Compiles the source on standard input as python.py does, but does not run it. Errors go to
# standard error.
import ast, sys, warnings

warnings.simplefilter("ignore")
text = sys.stdin.buffer.read().decode("utf-8", "replace")
try:
    if sys.argv[1] == "hook":
        compile(text, "<hook>", "exec")
    else:
        tree = ast.parse("def handler(payload, job): pass")
        tree.body[0].body = ast.parse(text, "<body>").body or tree.body[0].body
        compile(tree, "<body>", "exec")
except SyntaxError as e:
    sys.exit("line %s: %s" % (e.lineno, e.msg) if e.lineno else e.msg)
except Exception as e:
    sys.exit(str(e) or type(e).__name__)

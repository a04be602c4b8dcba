// Compiles the source on standard input as node.js does, but does not run it. Errors go to
// standard error.
const source = require('fs').readFileSync(0, 'utf8');
try {
  new (async () => {}).constructor('payload', 'job', source);
} catch (e) {
  let line = '';
  try { // the constructor above does not report the line, vm.Script does
    new (require('vm').Script)(`(async function (payload, job) {\n${source}\n})`, { filename: 'source', lineOffset: -1 });
  } catch (e) {
    line = /^source:(\d+)/.exec(e.stack)?.[1] ?? '';
  }
  console.error((line && `line ${line}: `) + e.message);
  process.exitCode = 1;
}

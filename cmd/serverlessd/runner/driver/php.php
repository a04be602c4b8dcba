// Runs the jobs of a PHP context. Frames come in on descriptor 3: a line of
// JSON, then as many bytes as its size says. Each except "code" is answered on
// standard output: a line with the secret, a status and a size, then the
// data.
namespace Gloom;

// compile is not in the class, because a handler must not have access to the secret.
function compile($source)
{
    return eval('return static function ($payload, $job) {' . $source . "\n};");
}

final class Context
{
    private static $input, $secret, $process, $frame, $sources = [], $bodies = [];

    // next runs jobs until a hook comes, which must be evaluated in the global scope. It returns
    // false at the end of the input.
    static function next()
    {
        self::$input ??= fopen('php://fd/3', 'rb');
        self::$process ??= getmypid();
        while (($line = fgets(self::$input)) !== false) {
            $frame = json_decode($line, true);
            $raw = $frame['size'] ? stream_get_contents(self::$input, $frame['size']) : '';
            switch ($frame['do']) {
                case 'hello':
                    self::$secret = $frame['secret'];
                    self::answer(200, '');
                    break;
                case 'code':
                    self::$sources[$frame['code']] = preg_replace('/^\s*<\?php\b/', '', $raw);
                    break;
                case 'hook':
                    self::$frame = $frame;
                    return true;
                default:
                    self::run($frame, $raw);
            }
        }
        return false;
    }

    static function hook()
    {
        return self::$sources[self::$frame['code']];
    }

    static function answer($status, $data)
    {
        if (getmypid() !== self::$process) {
            exit; // this is a child process that the handler has forked
        }
        while (ob_get_level() > 0) {
            ob_end_flush();
        }
        $left = "\n" . self::$secret . ' ' . $status . ' ' . strlen($data) . "\n" . $data;
        while ($left !== '' && ($n = fwrite(STDOUT, $left)) > 0) {
            $left = substr($left, $n);
        }
    }

    static function failed($error)
    {
        fwrite(STDERR, $error . "\n");
        self::answer(500, $error->getMessage() ?: get_class($error));
    }

    private static function run($frame, $raw)
    {
        try {
            $body = self::$bodies[$frame['code']] ??= compile(self::$sources[$frame['code']]);
            $payload = preg_match('//u', $raw) ? $raw
                : htmlspecialchars_decode(htmlspecialchars($raw, ENT_NOQUOTES | ENT_SUBSTITUTE, 'UTF-8'), ENT_NOQUOTES);
            $job = ['id' => $frame['id'], 'type' => $frame['type'], 'tries' => $frame['tries'], 'raw' => $raw];
            [$status, $data] = self::result($body($payload, $job));
        } catch (\Throwable $error) {
            self::failed($error);
            return;
        }
        if ($status != (int) $status) {
            $data = $data === '' ? 'status ' . var_export($status, true) . ' counts as 500' : $data;
            $status = 500;
        }
        self::answer((int) $status, $data);
    }

    private static function result($r)
    {
        if ($r === null) {
            return [200, ''];
        }
        if (is_int($r) || is_float($r)) {
            return [$r, ''];
        }
        if (is_string($r)) {
            return [200, $r];
        }
        if (is_array($r) && (array_key_exists('status', $r) || array_key_exists('data', $r))) {
            $data = $r['data'] ?? '';
            return [$r['status'] ?? 200, is_string($data) ? $data : json_encode($data)];
        }
        throw new \TypeError('the handler must return nothing, a number, a string or an array with status and data');
    }
}

while (Context::next()) {
    try {
        eval(Context::hook());
        Context::answer(200, '');
    } catch (\Throwable $gloomError) {
        Context::failed($gloomError);
        unset($gloomError);
    }
}

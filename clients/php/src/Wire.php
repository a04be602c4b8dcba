<?php

declare(strict_types=1);

namespace Gloom;

use Gloom\Exception\ProtocolException;

/**
 * Frames and messages: encoding and decoding.
 *
 * @internal
 */
final class Wire
{
    /** Bytes of the length before each payload. */
    public const HEADER = 4;
    /** A year, the longest duration, and a day, in seconds. */
    public const YEAR = 31_536_000.0;
    public const DAY = 86_400.0;

    private const SPACE = " \t\n\r";

    /**
     * Encodes one frame: an object with these fields, in this order, without those that are null.
     *
     * @param array<string, mixed> $fields
     */
    public static function encode(array $fields): string
    {
        $pairs = [];
        foreach ($fields as $key => $value) {
            if ($value !== null) {
                $pairs[] = "\"$key\":" . RawJson::from($value);
            }
        }
        $payload = '{' . implode(',', $pairs) . '}';

        return pack('N', strlen($payload)) . $payload;
    }

    /**
     * Decodes the payload of a frame. Body and progress are checked, but stay bytes.
     *
     * @return array<string, mixed>
     */
    public static function decode(string $payload): array
    {
        try {
            $fields = preg_match('//u', $payload) === 1 ? self::fields($payload) : throw new \UnexpectedValueException('not UTF-8');
            self::check($fields);

            return $fields;
        } catch (\JsonException | \UnexpectedValueException $e) {
            throw new ProtocolException('the broker sent a frame that is not a JSON object', 0, $e);
        }
    }

    /** @return array<string, mixed> */
    private static function fields(string $json): array
    {
        $fields = [];
        $at = self::expect($json, strspn($json, self::SPACE), '{');
        while (($json[$at] ?? '') !== '}') {
            $end = self::skip($json, $at);
            $key = json_decode(substr($json, $at, $end - $at), false, 2, JSON_THROW_ON_ERROR);
            if (!is_string($key)) {
                throw new \UnexpectedValueException("no key at $at");
            }
            $at = self::expect($json, $end + strspn($json, self::SPACE, $end), ':');
            $end = self::skip($json, $at);
            $value = substr($json, $at, $end - $at);
            if ($key === 'body' || $key === 'progress') {
                $fields[$key] = RawJson::of($value);
            } else {
                $fields[$key] = self::value($value);
            }
            $at = $end + strspn($json, self::SPACE, $end);
            if (($json[$at] ?? '') !== ',') {
                break;
            }
            $at = self::expect($json, $at, ',');
            if (($json[$at] ?? '') !== '"') {
                throw new \UnexpectedValueException("no key at $at");
            }
        }
        if (self::expect($json, $at, '}') !== strlen($json)) {
            throw new \UnexpectedValueException('more than one value');
        }

        return $fields;
    }

    /** Decodes a value; unpaired surrogates, which PHP's strings cannot hold, become U+FFFD. */
    private static function value(string $json): mixed
    {
        try {
            return json_decode($json, true, 1024, JSON_THROW_ON_ERROR);
        } catch (\JsonException $e) {
            if ($e->getCode() !== JSON_ERROR_UTF16) {
                throw $e;
            }
        }
        $half = '/\\\\(?:[^u]|u[dD][89abAB]..\\\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|u....)/';
        $whole = preg_replace_callback($half, static fn (array $found): string => isset($found[1]) ? '\ufffd' : $found[0], $json);

        return json_decode((string) $whole, true, 1024, JSON_THROW_ON_ERROR);
    }

    /**
     * Refuses a message whose keys do not fit its kind: a client that ignored it might wait forever.
     *
     * @param array<string, mixed> $fields
     */
    private static function check(array $fields): void
    {
        $action = $fields['action'] ?? null;
        $need = match (true) {
            array_key_exists('error', $fields) => ['error', 'reason', ...isset($fields['id']) ? ['id'] : []],
            $action === 'job' => ['id', 'type'],
            $action === 'cancel' => ['id'],
            array_key_exists('action', $fields) => [],
            array_key_exists('ok', $fields) => isset($fields['id']) ? ['id'] : [],
            default => array_key_exists('id', $fields) && (isset($fields['body']) || isset($fields['progress'])) ? ['id'] : [],
        };
        foreach ($need as $key) {
            if (!is_string($fields[$key] ?? null)) {
                throw new ProtocolException("the broker sent a frame whose $key is not a string");
            }
        }
        if ($action === 'job' && !isset($fields['error']) && !isset($fields['body'])) {
            throw new ProtocolException('the broker sent a job without a body');
        }
    }

    /** The index after a character and the spaces that follow it. */
    private static function expect(string $json, int $at, string $char): int
    {
        if (($json[$at] ?? '') !== $char) {
            throw new \UnexpectedValueException("no $char at $at");
        }

        return $at + 1 + strspn($json, self::SPACE, $at + 1);
    }

    /** The index after the value that begins at this one. */
    private static function skip(string $json, int $at): int
    {
        for ($depth = 0;;) {
            $at += strcspn($json, $depth ? '"[]{}' : "\"[]{}, \t\n\r:", $at);
            switch ($json[$at] ?? '') {
                case '"':
                    do {
                        $at++;
                        $at += strcspn($json, '"\\', $at);
                        if (($json[$at] ?? '') === '\\') {
                            $at++;
                            continue;
                        }
                        break;
                    } while (true);
                    if (!isset($json[$at])) {
                        throw new \UnexpectedValueException('a string without an end');
                    }
                    $at++;
                    break;
                case '[':
                case '{':
                    $depth++;
                    $at++;
                    continue 2;
                case ']':
                case '}':
                    if ($depth === 0) {
                        return $at;
                    }
                    $depth--;
                    $at++;
                    break;
                default:
                    return $at;
            }
            if ($depth === 0) {
                return $at;
            }
        }
    }

    /** Returns the value if the broker accepts it as a name, else throws. */
    public static function name(string $field, string $value): string
    {
        if ($value === '' || strlen($value) > 1024) {
            throw new \InvalidArgumentException("$field of " . strlen($value) . ' bytes: must be 1 to 1024');
        }
        if (preg_match('//u', $value) !== 1) {
            throw new \InvalidArgumentException("$field: must be UTF-8");
        }

        return $value;
    }

    /**
     * @param ?array<string> $values
     * @return ?list<string>
     */
    public static function names(string $field, ?array $values): ?array
    {
        return $values === null ? null : array_map(static fn (string $v): string => self::name($field, $v), array_values($values));
    }

    /** Converts seconds to milliseconds, rounded up; null stays null. */
    public static function millis(string $field, ?float $seconds, float $most = self::YEAR): ?int
    {
        if ($seconds === null) {
            return null;
        }
        if (!($seconds >= 0.0 && $seconds <= $most)) {
            throw new \InvalidArgumentException("$field $seconds: must be 0 to $most seconds");
        }

        return (int) ceil(round($seconds * 1000, 6));
    }

    public static function integer(string $field, int $value, int $min, int $max): int
    {
        if ($value < $min || $value > $max) {
            throw new \InvalidArgumentException("$field $value: must be $min to $max");
        }

        return $value;
    }
}

<?php

declare(strict_types=1);

namespace Gloom;

/**
 * The bytes of a JSON value. As a body it is sent unchanged; with raw: true, bodies arrive
 * as RawJson. Numbers keep all their digits, and objects the order of their keys.
 */
final class RawJson implements \JsonSerializable, \Stringable
{
    /** Deepest nesting of a value: a message may have 1024 levels, and is the first of them. */
    private const DEPTH = 1023;

    private function __construct(private readonly string $bytes)
    {
    }

    /** Takes the text of one JSON value; throws \JsonException if it is not JSON. */
    public static function of(string $json): self
    {
        try {
            self::decode($json);
        } catch (\JsonException $e) {
            if (!in_array($e->getCode(), [JSON_ERROR_UTF16, JSON_ERROR_INVALID_PROPERTY_NAME], true)) {
                throw $e;
            }
            // Unpaired surrogates and keys that begin with NUL are valid JSON, but PHP's values cannot
            // hold them. Without its \u escapes the text is JSON if it was JSON before.
            self::decode((string) preg_replace('/(\\\\[^u])|\\\\u[0-9A-Fa-f]{4}/', '$1x', $json));
        }

        return new self($json);
    }

    /** Takes bytes that are known to be JSON. */
    public static function trusted(string $json): self
    {
        return new self($json);
    }

    /**
     * Encodes a value.
     *
     * @throws \JsonException if JSON cannot express it
     */
    public static function from(mixed $value): self
    {
        if ($value instanceof self) {
            return $value;
        }
        $flags = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION;

        return new self(json_encode($value, $flags, self::DEPTH));
    }

    /** Decodes the value: objects become \stdClass, so that {} and [] stay different. */
    public function value(): mixed
    {
        return self::decode($this->bytes);
    }

    /** Inside another value it becomes a plain value; only a whole body keeps its bytes. */
    public function jsonSerialize(): mixed
    {
        return $this->value();
    }

    public function __toString(): string
    {
        return $this->bytes;
    }

    private static function decode(string $json): mixed
    {
        return json_decode($json, false, self::DEPTH + 1, JSON_THROW_ON_ERROR);
    }
}

<?php

declare(strict_types=1);

namespace Gloom;

use Psr\Log\LoggerInterface;

/** Settings that submitters and workers share. Durations are seconds. */
final class Settings
{
    /** @var list<string> empty: the broker of this host */
    public readonly array $addrs;

    /**
     * @param string|array<string> $addrs "host:port", "tls://host:port" or "unix:/path". Default: the unix
     *     socket of this host's broker, if there is one, else 127.0.0.1:9998 or :9999. A worker joins all of
     *     them; a submitter uses one, and moves to the next when it is lost or drains.
     * @param ?string $token authenticates each connection
     * @param ?string $client a name for the broker's log, such as "mailer/1.4"
     * @param float $heartbeat interval of pings to a silent broker, which is given up after three
     *     intervals; 0.1 to 3600, 0 for none: a broker that hangs is then waited for
     * @param ?array<string, mixed> $tls encrypts all connections: PHP's SSL context options, such as cafile, local_cert
     * @param float $connectTimeout limit of one attempt to connect, including TLS and hello, and then of the
     *     reply to a worker's join, and to each of its last requests
     * @param int $maxFrame bytes of the largest frame that the broker accepts, unless its hello
     *     gives the limit
     * @param array{float, float} $backoff the first and the largest wait before another attempt to connect
     * @param bool $raw bodies arrive as RawJson
     * @param ?LoggerInterface $logger gets lost connections, and exceptions of handlers
     */
    public function __construct(
        string|array $addrs = [],
        public readonly ?string $token = null,
        public readonly ?string $client = null,
        public readonly float $heartbeat = 0.0,
        public readonly ?array $tls = null,
        public readonly float $connectTimeout = 10.0,
        public readonly int $maxFrame = 16 * 1024 * 1024,
        public readonly array $backoff = [0.1, 15.0],
        public readonly bool $raw = false,
        public readonly ?LoggerInterface $logger = null,
    ) {
        $this->addrs = array_values((array) $addrs);
        foreach ($this->addrs as $addr) {
            self::target($addr, false);
        }
        if ($heartbeat !== 0.0 && !($heartbeat >= 0.1 && $heartbeat <= 3600)) {
            throw new \InvalidArgumentException("heartbeat $heartbeat: must be 0, or 0.1 to 3600 seconds");
        }
        if (!($backoff[0] > 0 && $backoff[1] >= $backoff[0])) {
            throw new \InvalidArgumentException("backoff $backoff[0], $backoff[1]: must be above 0 and rising");
        }
    }

    /** @return list<string> where to connect now */
    public function addrs(string $port): array
    {
        if ($this->addrs !== []) {
            return $this->addrs;
        }
        $runtime = (string) getenv('XDG_RUNTIME_DIR');
        $root = !function_exists('posix_geteuid') || posix_geteuid() === 0;
        $socket = ($root || !str_starts_with($runtime, '/') ? '/run' : $runtime) . "/gloom/$port.sock";
        if ($this->tls === null && file_exists($socket)) {
            return ["unix:$socket"];
        }

        return [$port === 'submit' ? '127.0.0.1:9998' : '127.0.0.1:9999'];
    }

    /**
     * The address in the form of stream_socket_client.
     *
     * @return array{string, string} the target, and the host that a certificate must name or ''
     */
    public static function target(string $addr, bool $tls): array
    {
        if (str_starts_with($addr, 'unix:/')) {
            return ['unix://' . substr($addr, 5), ''];
        }
        $found = preg_match('~^(tls://)?(?:\[([^\]]+)\]|([^:\[\]/]+)):(\d{1,5})$~', $addr, $part);
        if ($found !== 1 || (int) $part[4] > 65535) {
            throw new \InvalidArgumentException("address \"$addr\": must be host:port, tls://host:port or unix:/path");
        }
        $host = $part[2] . $part[3];
        $at = ($part[2] === '' ? $host : "[$host]") . ":$part[4]";

        return $tls || $part[1] !== '' ? ["tls://$at", $host] : ["tcp://$at", ''];
    }

    /** @param array<string, mixed> $context */
    public function log(string $level, string $message, array $context = []): void
    {
        $this->logger?->log($level, "gloom: $message", $context);
    }
}

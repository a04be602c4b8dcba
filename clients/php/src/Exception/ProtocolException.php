<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** The broker violated the protocol; the connection is dropped. */
class ProtocolException extends GloomException
{
}

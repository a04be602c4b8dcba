<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** The broker sent what the protocol does not allow; the connection is dropped. */
class ProtocolException extends GloomException
{
}

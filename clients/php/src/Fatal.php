<?php

declare(strict_types=1);

namespace Gloom;

/** Thrown by a handler: the job fails at once, whatever retries it has left. */
class Fatal extends \RuntimeException
{
}

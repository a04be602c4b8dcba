<?php

declare(strict_types=1);

namespace Gloom;

/** Thrown by a handler: the job fails at once, even if it has retries left. */
class Fatal extends \RuntimeException
{
}

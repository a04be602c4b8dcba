<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** No connection to a broker, or no room in the window, within the time allowed. */
class NotConnectedException extends GloomException
{
}

<?php

declare(strict_types=1);

namespace Gloom\Exception;

/** No connection to a broker, or no room in the window, in the time there was. */
class NotConnectedException extends GloomException
{
}

package peers

import (
	"strconv"

	"gloom/bench/poll"
)

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func hangup(c *poll.Conn, hard bool) {
	switch {
	case c == nil:
	case hard:
		c.Reset()
	default:
		c.Close()
	}
}

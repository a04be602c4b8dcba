package gloom

import (
	"errors"
	"io"

	"gloom/wire"
)

const readBuffer = 8 << 10

var errHTTP = errors.New("this is an HTTP server")

// frames cuts a stream into frames. Its memory grows with what has arrived, not with what is
// announced.
type frames struct {
	from io.Reader
	buf  []byte // what has arrived and is not yet cut, from at on
	at   int
}

// next returns the payload of the next frame, at most max bytes, valid until the next call.
func (f *frames) next(max int) ([]byte, error) {
	for {
		rest := f.buf[f.at:]
		payload, used, tooLarge := wire.SplitFrame(rest, max)
		switch {
		case tooLarge != nil && string(rest[:wire.HeaderLen]) == "HTTP":
			return nil, errHTTP
		case tooLarge != nil:
			return nil, &ProtocolError{Reason: tooLarge.Reason}
		case used > 0:
			f.at += used
			return payload, nil
		}
		if size := cap(f.buf); size == 0 || len(rest) == 0 && size > keepBuffer {
			f.buf = make([]byte, 0, readBuffer)
		} else if len(rest) == size {
			f.buf = append(make([]byte, 0, 2*size), rest...)
		} else if f.at > 0 {
			f.buf = f.buf[:copy(f.buf, rest)]
		}
		f.at = 0
		n, err := f.from.Read(f.buf[len(f.buf):cap(f.buf)])
		f.buf = f.buf[:len(f.buf)+n]
		if err != nil && n == 0 {
			return nil, err
		}
	}
}

package gloom_test

import (
	"net"
	"testing"

	"gloom/wire"
)

// echoJobs is a trivial broker that acks every submit and answers with the body of the job.
// It writes once per read.
func echoJobs(nc net.Conn) {
	defer nc.Close()
	var (
		dec   = wire.Decoder{DefaultType: "default"}
		req   wire.Request
		in    = make([]byte, 0, 256<<10)
		out   []byte
		start int
	)
	for {
		if len(in) == cap(in) {
			in = append(make([]byte, 0, 2*cap(in)), in...)
		}
		n, err := nc.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in = in[:len(in)+n]
		out, start = out[:0], 0
		for {
			payload, used, err := wire.SplitFrame(in[start:], 1<<30)
			if err != nil {
				return
			}
			if used == 0 {
				break
			}
			start += used
			out = echoFrame(out, &dec, &req, payload)
		}
		in = in[:copy(in, in[start:])]
		if _, err := nc.Write(out); err != nil {
			return
		}
	}
}

func echoFrame(out []byte, dec *wire.Decoder, req *wire.Request, payload []byte) []byte {
	if err := dec.Decode(payload, wire.SubmitPort, false, req); err != nil {
		return wire.AppendError(out, err.Code, err.Reason, err.ID)
	}
	if req.Verb != wire.Submit {
		return wire.AppendOK(out)
	}
	if !req.NoAck {
		out = wire.AppendOKID(out, req.ID)
	}
	if !req.Detach {
		out = wire.AppendResult(out, req.ID, req.Body)
	}
	return out
}

// echoBroker accepts connections and echoes.
func echoBroker(t testing.TB) (addr string) {
	f := newFakeBroker(t)
	go func() {
		for {
			nc, err := f.ln.Accept()
			if err != nil {
				return
			}
			go echoJobs(nc)
		}
	}()
	return f.addr()
}

package brokers

import (
	"bytes"
	"encoding/binary"

	"gloom/bench/load"
)

// Gearman uses gearmand's binary protocol.
var Gearman = load.Protocol{
	Traits:    load.Traits{Acks: load.CountedAcks, Queues: true, TracksPeers: true},
	Submitter: newGearmanSubmitter, Worker: newGearmanWorker,
}

// Packet types from gearmand's protocol document.
const (
	gearCanDo        = 1
	gearPreSleep     = 4
	gearNoop         = 6
	gearSubmit       = 7
	gearCreated      = 8
	gearGrab         = 9
	gearNoJob        = 10
	gearAssign       = 11
	gearComplete     = 13
	gearFail         = 14
	gearError        = 19
	gearSubmitHigh   = 21
	gearSubmitLow    = 33
	gearHeadLen      = 12
	gearmanBacklog   = "4096"
	gearmanHashTable = "100003" // for millions of jobs; with the default of 991 the chains get long
)

func newGearmanSubmitter(s *load.Submitter) load.SubmitterSide {
	g := &gearmanSubmitter{s: s, types: s.Types()}
	g.serverConn = serverConn{peer: s, handleNext: g.handlePacket}
	return g
}

func newGearmanWorker(w *load.Worker) load.WorkerSide {
	g := &gearmanWorker{w: w}
	hello := append(appendPacketHead(nil, gearCanDo, len(w.Type)), w.Type...)
	g.serverConn = serverConn{peer: w, greeting: appendPacketHead(hello, gearGrab, 0), handleNext: g.handlePacket}
	return g
}

// appendPacketHead appends a packet's head; size is that of its arguments.
func appendPacketHead(out []byte, typ, size int) []byte {
	out = append(out, "\x00REQ"...)
	out = binary.BigEndian.AppendUint32(out, uint32(typ))
	return binary.BigEndian.AppendUint32(out, uint32(size))
}

// nextPacket returns the packet at the start of in; used is 0 while it is not complete.
func nextPacket(in []byte) (typ int, args []byte, used int) {
	if len(in) < gearHeadLen {
		return 0, nil, 0
	}
	n := int(binary.BigEndian.Uint32(in[8:]))
	if len(in)-gearHeadLen < n {
		return 0, nil, 0
	}
	return int(binary.BigEndian.Uint32(in[4:])), in[gearHeadLen : gearHeadLen+n], gearHeadLen + n
}

type gearmanSubmitter struct {
	serverConn
	s     *load.Submitter
	types []string
}

func (g *gearmanSubmitter) Submit(typ int, priority int64, n load.Number) {
	name, body := g.types[typ], g.s.Body()
	verb := gearSubmit
	if priority > 0 { // gearmand has only three levels
		verb = gearSubmitHigh
	}
	out := appendPacketHead(g.conn.Out(), verb, len(name)+2+body.Len())
	out = append(out, name...)
	out = append(out, 0, 0) // no unique id: gearmand need not look for an equal job
	g.conn.SetOut(body.Append(out, n))
}

func (g *gearmanSubmitter) handlePacket(in []byte) int {
	typ, args, used := nextPacket(in)
	if used == 0 {
		return 0
	}
	switch typ {
	case gearCreated:
		g.s.AckedNext()
	case gearComplete:
		_, body, _ := bytes.Cut(args, []byte{0})
		g.s.Answered(nil, body)
	case gearFail, gearError:
		g.s.Refused(nil, "gearman error", string(args))
	default:
		g.s.Misbehaved("packet of type %d to a submitter", typ)
	}
	return used
}

type gearmanWorker struct {
	serverConn
	w      *load.Worker
	asleep bool
}

// Answer sends the result and asks for the next job in one write.
func (g *gearmanWorker) Answer(job load.Job) {
	out := appendPacketHead(g.conn.Out(), gearComplete, len(job.ID)+1+len(job.Body))
	out = append(out, job.ID...)
	out = append(out, 0)
	out = append(out, job.Body...)
	g.conn.SetOut(appendPacketHead(out, gearGrab, 0))
}

func (g *gearmanWorker) handlePacket(in []byte) int {
	typ, args, used := nextPacket(in)
	if used == 0 {
		return 0
	}
	switch typ {
	case gearNoJob:
		g.w.Ready()
		g.asleep = true
		g.conn.SetOut(appendPacketHead(g.conn.Out(), gearPreSleep, 0))
	case gearNoop:
		if g.asleep {
			g.asleep = false
			g.conn.SetOut(appendPacketHead(g.conn.Out(), gearGrab, 0))
		}
	case gearAssign:
		g.w.Ready()
		handle, rest, _ := bytes.Cut(args, []byte{0})
		_, body, _ := bytes.Cut(rest, []byte{0})
		g.w.Job(load.Job{ID: handle, Body: body})
	case gearError:
		g.w.Refused("gearman error", string(args))
	default:
		g.w.Misbehaved("packet of type %d to a worker", typ)
	}
	return used
}

func gearmandArgs(port string, _ Settings) []string {
	return []string{"--listen=127.0.0.1", "--port=" + port, "--backlog=" + gearmanBacklog, "--log-file=stderr", "--pid-file=pid"}
}

func gearmandTunedArgs(port string, set Settings) []string {
	return append(gearmandArgs(port, set), "--threads=1", "--hashtable-buckets="+gearmanHashTable, "--worker-wakeup=1")
}

package live

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gloom/broker/settings"
	"gloom/clients/live/agent"
)

func tokensAndTLS(w *world) {
	folder := w.TempDir()
	cert, key, tokens := filepath.Join(folder, "cert"), filepath.Join(folder, "key"), filepath.Join(folder, "tokens")
	certificate(w, cert, key)
	if err := os.WriteFile(tokens, []byte("s3cret submit echo\nw0rk work\n"), 0o600); err != nil {
		w.Fatal(err)
	}
	srv := w.broker(func(o *settings.Options) { o.TLSCert, o.TLSKey, o.TokenFile = cert, key, tokens })
	work, to := workers("echo")(srv), addrs(srv)
	work.CA, work.Token, to.CA, to.Token = cert, "w0rk", cert, "s3cret"
	w.worker(work)
	s := w.submitter(to)
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: `1`}), `1`)
	s.wantFailure(s.do(agent.Command{Do: "submit", Type: "other"}), "refused", "forbidden")
	to.Token = "wrong"
	s = w.submitter(to)
	s.wantFailure(s.do(agent.Command{Do: "submit", Type: "echo"}), "refused", "unauthorized")
	// A client that does not know the issuer does not connect.
	addr := addrs(srv)
	addr.Addrs[0], addr.Token = "tls://"+addr.Addrs[0], "s3cret"
	s = w.submitter(addr)
	tag := s.do(agent.Command{Do: "submit", Type: "echo"})
	select {
	case e := <-s.Events:
		if e.Tag == tag && e.Error == nil {
			w.Errorf("told %s over an unknown issuer", show(e))
		}
	case <-time.After(300 * time.Millisecond):
	}
}

// certificate writes a certificate for 127.0.0.1, which is its own issuer, and its key.
func certificate(w *world, cert, key string) {
	w.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gloom test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		w.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		w.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			w.Fatal(err)
		}
	}
}

// newFake starts a broker that runs script for each connection. n is the number of the
// connection, from 0.
func newFake(w *world, script func(n int, p *peer)) string {
	w.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { ln.Close() })
	go func() {
		for n := 0; ; n++ {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				script(n, &peer{nc})
			}()
		}
	}()
	return ln.Addr().String()
}

type peer struct{ net.Conn }

// read returns the next frame's payload, "" at the end.
func (p *peer) read() string {
	var size [4]byte
	if _, err := io.ReadFull(p, size[:]); err != nil {
		return ""
	}
	payload := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(p, payload); err != nil {
		return ""
	}
	return string(payload)
}

// skipTo reads frames until one has this verb, answering those before it with ok.
func (p *peer) skipTo(verb string) string {
	for {
		frame := p.read()
		if frame == "" || strings.Contains(frame, `"action":"`+verb+`"`) {
			return frame
		}
		p.send(`{"ok":true}`)
	}
}

func (p *peer) send(payload string) {
	p.Write(binary.BigEndian.AppendUint32(nil, uint32(len(payload))))
	p.Write([]byte(payload))
}

// id returns the id in a frame.
func id(frame string) string {
	_, rest, _ := strings.Cut(frame, `"id":"`)
	found, _, _ := strings.Cut(rest, `"`)
	return found
}

// serveOne answers one submit as a broker does.
func (p *peer) serveOne() {
	frame := p.skipTo("submit")
	p.send(fmt.Sprintf(`{"ok":true,"id":%q}`, id(frame)))
	p.send(fmt.Sprintf(`{"id":%q,"body":"well"}`, id(frame)))
	io.Copy(io.Discard, p)
}

// backoffs: a job that may be retried and has no backoff is sent with a backoff of one second.
func backoffs(w *world) {
	addr := newFake(w, func(_ int, p *peer) {
		for {
			frame := p.skipTo("submit")
			if frame == "" {
				return
			}
			backoff := "0" // a frame without the key means 0
			if _, rest, found := strings.Cut(frame, `"backoff_ms":`); found {
				backoff, _, _ = strings.Cut(rest, ",")
			}
			p.send(fmt.Sprintf(`{"ok":true,"id":%q}`, id(frame)))
			p.send(fmt.Sprintf(`{"id":%q,"body":%q}`, id(frame), backoff))
		}
	})
	s := w.submitter(agent.Options{Addrs: []string{addr}})
	noBackoff, someBackoff := 0, 250
	for _, c := range []struct {
		retries, backoff *int
		want             string
	}{{nil, nil, "1000"}, {&someBackoff, nil, "1000"}, {&noBackoff, nil, "0"}, {&noBackoff, &someBackoff, "250"}, {&someBackoff, &noBackoff, "0"}} {
		s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Retries: c.retries, Backoff: c.backoff}), strconv.Quote(c.want))
	}
}

func silentBroker(w *world) {
	addr := newFake(w, func(n int, p *peer) {
		if n > 0 {
			p.serveOne()
			return
		}
		// It accepts the job, and sends nothing more.
		frame := p.skipTo("submit")
		p.send(fmt.Sprintf(`{"ok":true,"id":%q}`, id(frame)))
		io.Copy(io.Discard, p)
	})
	s := w.submitter(agent.Options{Addrs: []string{addr}, Heartbeat: 100})
	tag := s.do(agent.Command{Do: "submit", Type: "echo"})
	s.awaitAck(tag)
	if failure := s.wantFailure(tag, "lost", ""); !failure.Acked {
		w.Errorf("told %+v of an acked job", failure)
	}
	s.submitUntilAnswered(agent.Command{Do: "submit", Type: "echo"}, `"well"`)
}

// nested returns an array with this many levels.
func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

// badInput is input that ends a connection: raw bytes, or payloads of frames.
type badInput struct {
	name   string
	raw    string
	frames []string
	closes bool // the broker closes the connection after it; otherwise the client must
}

// sendNonsense sends bad input, and waits until the client closes the connection.
func (p *peer) sendNonsense(input badInput) {
	io.WriteString(p, input.raw)
	for _, f := range input.frames {
		p.send(f)
	}
	if input.closes {
		time.Sleep(50 * time.Millisecond)
		return
	}
	io.Copy(io.Discard, p)
}

var nonsense = []badInput{
	{name: "a length beyond all limits", raw: "\xff\xff\xff\xff{"},
	{name: "http", raw: "HTTP/1.1 400 Bad Request\r\n\r\n"},
	{name: "half a frame", raw: "\x00\x00\x00\x10{\"ok\"", closes: true},
	{name: "no json", frames: []string{`{"ok":tru`}},
	{name: "an array", frames: []string{`[1]`}},
	{name: "an empty frame", frames: []string{``}},
	{name: "a result that is not UTF-8", frames: []string{"{\"id\":\"a\",\"body\":\"\xff\"}"}},
	{name: "a result that is not JSON", frames: []string{`{"id":"a","body":nothing}`}},
	{name: "a result that is nested too deep", frames: []string{`{"id":"a","body":` + nested(1024) + `}`}},
	{name: "an id that is no string", frames: []string{`{"id":7,"body":1}`}},
	{name: "progress of a job whose id is no string", frames: []string{`{"id":{},"progress":1}`}},
	{name: "an ok for an id that is no string", frames: []string{`{"ok":true,"id":7}`}},
	{name: "an error about an id that is no string", frames: []string{`{"error":"job_failed","reason":"none","id":[7]}`}},
	{name: "a job whose id is no string", frames: []string{`{"action":"job","id":7,"type":"echo","body":1}`}},
	{name: "a job whose type is no string", frames: []string{`{"action":"job","id":"a","type":7,"body":1}`}},
	{name: "a job without a body", frames: []string{`{"action":"job","id":"a","type":"echo"}`}},
	{name: "a cancel without an id", frames: []string{`{"action":"cancel"}`}},
	{name: "oks that nothing asked for", frames: []string{`{"ok":true}`, `{"ok":true}`, `{"ok":true}`, `{"ok":true}`}},
	{name: "an error that nothing asked for", frames: []string{`{"error":"weird","reason":"none"}`}},
	{name: "a refusal of the connection", frames: []string{`{"error":"overloaded","reason":"one too many"}`}},
}

func nonsenseToSubmitter(w *world) {
	for _, input := range nonsense {
		addr := newFake(w, func(n int, p *peer) {
			if n > 0 {
				p.serveOne()
				return
			}
			frame := p.skipTo("submit")
			p.send(fmt.Sprintf(`{"ok":true,"id":%q}`, id(frame)))
			p.sendNonsense(input)
		})
		s := w.submitter(agent.Options{Addrs: []string{addr}})
		if e := s.end(s.do(agent.Command{Do: "submit", Type: "echo"})); e.Error == nil || e.Error.Kind != "lost" || !e.Error.Acked {
			w.Errorf("%s: told %s", input.name, show(e))
		}
		s.submitUntilAnswered(agent.Command{Do: "submit", Type: "echo"}, `"well"`)
		s.Kill()
	}
	// Unusual but valid input is ignored.
	deepestFrame := `{"id":"nobody's","body":` + nested(1023) + `}`
	addr := newFake(w, func(_ int, p *peer) {
		frame := p.skipTo("submit")
		name := id(frame)
		for _, f := range []string{
			`{"moons":4}`, `{"action":"dance","id":1}`, deepestFrame, `{"id":"nobody's","body":{"\u0000":1}}`, `{"id":"nobody's","body":"\ud800"}`, `{"id":"nobody's","body":1}`, `{"id":"nobody's","progress":1}`,
			fmt.Sprintf(`{"later":true,"ok":true,"id":%q}`, name), fmt.Sprintf(`{"id":%q,"progress":1}`, name),
			`{"error":"job_failed","reason":"of another","id":"nobody's"}`,
			fmt.Sprintf(` { "more" : [ ] , "body" : "well" , "id" : %q } `, name),
		} {
			p.send(f)
		}
		io.Copy(io.Discard, p)
	})
	s := w.submitter(agent.Options{Addrs: []string{addr}})
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo"}), `"well"`)
}

func nonsenseToWorker(w *world) {
	for _, input := range nonsense {
		var isServed atomic.Bool
		addr := newFake(w, func(n int, p *peer) {
			p.skipTo("join")
			p.send(`{"ok":true}`)
			if n == 0 {
				p.sendNonsense(input)
				return
			}
			p.send(`{"moons":4}`)
			p.send(`{"action":"cancel","id":"nobody's"}`)
			p.send(`{"action":"job","id":"a1","type":"echo","body":{"x":1.10},"later":[]}`)
			answer := p.skipTo("respond")
			isServed.Store(strings.Contains(answer, `"a1"`) && strings.Contains(answer, `{"x":1.10}`))
			p.send(`{"ok":true}`)
			io.Copy(io.Discard, p)
		})
		a := w.start("worker", agent.Options{Addrs: []string{addr}, Types: []string{"echo"}})
		w.until("a job is answered after "+input.name, isServed.Load)
		a.Kill()
	}
}

// answerRefused: a worker whose answer is refused, and then the failure that it reports instead, serves
// further jobs.
func answerRefused(w *world) {
	var isServed atomic.Bool
	addr := newFake(w, func(n int, p *peer) {
		p.skipTo("join")
		p.send(`{"ok":true}`)
		if n == 0 {
			p.send(`{"action":"job","id":"a1","type":"echo","body":1}`)
			p.skipTo("respond")
			p.send(`{"error":"weird","reason":"none","id":"a1"}`)
			p.skipTo("fail")
			p.send(`{"error":"weird","reason":"none","id":"a1"}`)
		}
		p.send(`{"action":"job","id":"a2","type":"echo","body":2}`)
		isServed.Store(strings.Contains(p.skipTo("respond"), `"a2"`) || isServed.Load())
		p.send(`{"ok":true}`)
		io.Copy(io.Discard, p)
	})
	w.worker(agent.Options{Addrs: []string{addr}, Types: []string{"echo"}})
	w.until("a job is answered after a refused failure", isServed.Load)
}

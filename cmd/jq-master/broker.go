package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/admin"
	"gloom/broker/guard"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/link"
	"gloom/cmd/jq-master/master"
)

// typePrefix returns the prefix of the broker's types for this queue's jobs.
func (o *options) typePrefix() string {
	switch {
	case !o.socketWorkers: // no other client can guess this prefix
		return "jq-" + strings.ToLower(rand.Text()) + "."
	case o.namespace != "default":
		return "jq:" + o.namespace + "."
	}
	return "jq."
}

// singleRunPrefix returns the prefix of types for jobs with max_retry 0. If Gloom workers may join,
// the prefix is random, so that they cannot guess it.
func (o *options) singleRunPrefix(prefix string) string {
	if !o.socketWorkers || o.exclusive() {
		return prefix
	}
	return strings.TrimSuffix(prefix, ".") + "-" + strings.ToLower(rand.Text()) + "."
}

// exclusive reports whether only this process can reach the broker.
func (o *options) exclusive() bool { return o.broker.SubmitAddr == "" && o.workerAddr == "" }

// openBroker starts a broker in this process, or prepares the connection to a shared broker.
func (o *options) openBroker(log zerolog.Logger) (master.Broker, error) {
	config := o.broker
	lost := make(chan struct{})
	closeLost := sync.OnceFunc(func() { close(lost) })
	var wasReached, isFailing atomic.Bool
	config.OnNotice = func(side string, n gloom.Notice) {
		if side == link.SubmitterSide {
			wasReached.Store(n.Event == gloom.EventConnected)
		}
		switch n.Event {
		case gloom.EventConnected, gloom.EventJoined:
			if isFailing.Swap(false) {
				log.Info().Str("broker", config.SubmitAddr).Msg("the broker has been reached")
			}
		case gloom.EventLost:
			closeLost()
		case gloom.EventGivenUp:
			if side == link.SubmitterSide { // master logs what workers' connections are refused for
				log.Error().Err(n.Err).Str("broker", n.Addr).Msg("the broker refuses the connection; trying again")
			}
		case gloom.EventFailed:
			if !isFailing.Swap(true) { // once in an outage, not once in an attempt
				flag, addr := "--broker", config.SubmitAddr
				if side != link.SubmitterSide {
					flag, addr = "--broker-workers", config.WorkerAddr
				}
				log.Warn().Err(n.Err).Str("broker", addr).Msgf("the broker cannot be reached: no job is handed out until an attempt succeeds; is %s right?", flag)
			}
		}
	}
	b := master.Broker{Lost: lost, Exclusive: o.exclusive(), IsReachable: wasReached.Load, MaxGroups: 16, MaxPrefetch: link.MaxSlots} // these are the defaults of an external broker
	if config.SubmitAddr == "" {
		b.MaxGroups, b.MaxPrefetch = 1<<12, 1<<20
	}
	config.ListenHTTP = true
	config.Configure = func(s *settings.Options) {
		if o.workerAddr != "" {
			s.WorkerAddr += "," + o.workerAddr
			s.TLSCert, s.TLSKey, s.TLSClientCA = o.door.TLSCert, o.door.TLSKey, o.door.TLSClientCA
			s.Insecure, s.SharedCerts = o.door.Insecure, true
		}
		// The master's limits must be reached before the broker's.
		s.MaxJobs, s.MaxTypeJobs, s.MaxSubmitterJobs = 0, 0, 0
		s.MaxBytes, s.MaxTypeBytes, s.MaxSubmitterBytes, s.MaxUnread = 0, 0, 0, 0
		s.MaxTypes, s.MaxGroups, s.MaxPrefetch = 1<<24, 1<<24, b.MaxPrefetch
		s.MaxOutbound = 1 << 30
		s.MaxJobGroups = b.MaxGroups
		s.MaxInbound = max(s.MaxInbound, 4*int64(s.MaxFrame))
	}
	// A body grows when it is converted to JSON, so frames may be larger than max-body. max-bytes
	// limits the memory.
	config.MaxFrame = max(64<<20, min(8*o.maxBody, 1<<30))
	l, err := link.Open(config, log)
	if err != nil {
		return b, err
	}
	b.Submitter, b.Worker, b.Close, b.Health, b.Forget, b.WantRights = l.SubmitterOptions(), l.WorkerOptions, l.Close, l.Health, l.ForgetSide, l.RetryRights
	if embedded := l.EmbeddedBroker(); embedded != nil {
		embedded.ServeHTTP(admin.New(embedded, zerolog.Nop()))
		b.Rules = master.Rules{Base: "http://localhost", HTTP: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, embedded.HTTPAddr().Network(), embedded.HTTPAddr().String())
			},
		}}}
		return b, nil
	}
	b.Rules, err = o.operatorAPI()
	return b, err
}

// operatorAPI returns a client for the operators' HTTP interface of a shared broker.
func (o *options) operatorAPI() (rules master.Rules, err error) {
	config := &o.broker
	transport := &http.Transport{}
	rules = master.Rules{Base: "http://", Token: config.Token, HTTP: &http.Client{Timeout: 10 * time.Second, Transport: transport}}
	if config.TLSCA+config.TLSCert+config.TLSServerName != "" {
		conf, err := cli.ClientTLS(config.TLSPrefix, config.TLSCA, config.TLSCert, config.TLSKey, config.TLSServerName)
		if err != nil {
			return rules, err
		}
		transport.DialTLSContext = cli.DialTLS(conf)
		rules.Base = "https://"
	}
	addr, scheme := guard.CutHTTP(o.brokerHTTP)
	if scheme != "" {
		rules.Base = scheme + "://"
	}
	if addr == "" {
		hostPort := strings.TrimPrefix(strings.TrimPrefix(config.SubmitAddr, "tls://"), "tcp://")
		host, port, err := net.SplitHostPort(hostPort)
		n, portErr := strconv.Atoi(port)
		if err != nil || portErr != nil || n < 2 {
			return rules, fmt.Errorf("--broker-http must give the broker's address for operators: by default it is the port before that of --broker, but %q has none", config.SubmitAddr)
		}
		addr = net.JoinHostPort(host, strconv.Itoa(n-1))
	}
	rules.Base += addr
	return rules, nil
}

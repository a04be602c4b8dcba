package main

import (
	"errors"
	"net"
	"runtime"

	"github.com/rs/zerolog"

	"gloom/broker/server"
	"gloom/cmd/internal/daemon"
	"gloom/wire"
)

func reload(srv *server.Server, log *daemon.Log, limitsFile string) {
	err := srv.Reload()
	if limitsFile != "" {
		limits, e := readLimits(limitsFile)
		if e == nil {
			e = addLineOfFile(limitsFile, srv.Limits().Load(limits))
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		log.Error().Err(err).Msg("reloading failed; settings that could not be read stay as they were")
		return
	}
	log.Audit.Info().Msg("tokens, certificates and limits were read again")
}

func formatAddresses(addrs []net.Addr) (addresses []string) {
	for _, a := range addrs {
		addresses = append(addresses, a.String())
	}
	return addresses
}

// announce logs that the broker is ready.
func announce(srv *server.Server, log *daemon.Log) {
	o := srv.Options()
	log.Announce("gloomd is ready", func(e *zerolog.Event) {
		e.Str("submit_addr", srv.SubmitAddr().String()).Str("worker_addr", srv.WorkerAddr().String())
		for name, port := range map[string]wire.Port{"submit_also": wire.SubmitPort, "worker_also": wire.WorkerPort} {
			if others := srv.Addrs(port)[1:]; len(others) > 0 {
				e.Strs(name, formatAddresses(others))
			}
		}
		if a := srv.HTTPAddr(); a != nil {
			e.Stringer("http_addr", a)
		}
	}, func(e *zerolog.Event) {
		e.Str("version", o.Version).Bool("tls", o.TLSCert != "").Bool("tokens", o.TokenFile != "").Bool("insecure", o.Insecure).
			Int("loops", o.EventLoops(runtime.GOMAXPROCS(0))).Int("max_conns", srv.MaxConns()).Int("max_frame", o.MaxFrame).
			Int64("max_memory", o.MaxMemory).Int("max_jobs", o.MaxJobs).Int64("max_bytes", o.MaxBytes).Int("max_type_jobs", o.MaxTypeJobs).
			Int("max_submitter_jobs", o.MaxSubmitterJobs).Int("max_outbound", o.MaxOutbound).
			Int64("max_inbound", o.MaxInbound).Int("retries", o.Retries)
	})
	if o.Insecure && o.IsExposed() {
		log.Warn().Msg("--insecure: anybody who can reach these addresses may submit, work and administer")
	}
	daemon.NotifyReady()
}

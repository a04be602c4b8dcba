package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/wire"
)

// These exit statuses are gloom's own, besides those that all programs share; exitHelp lists them.
const (
	exitUnreachable = 3
	exitDenied      = 4
)

const exitHelp = `Exit status: 0 for success; 1 if a job failed, was refused or does not exist;
2 for a wrong command line; 3 if no broker was reached or the connection was
lost; 4 if the broker denied access (token, scope, certificate); 130 after
Ctrl-C, 143 after SIGTERM.`

// inBrackets returns a hint in brackets, for an error and its hint on one line.
func inBrackets(hint string) string {
	if hint == "" {
		return ""
	}
	return " (" + hint + ")"
}

// plainText returns an error's text without the client's prefix.
func plainText(err error) string {
	return strings.TrimPrefix(err.Error(), "gloom: ")
}

// classify gives an error of the client its exit status and hint.
func classify(err error) error {
	var f *cli.Fault
	var refused *gloom.RefusedError
	var jobErr *gloom.JobError
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.As(err, &refused):
		f = cli.Failf(refusalStatus(refused.Code), "%s", errorText(refused.Code, refused.Reason, jobName(refused.ID)))
		f.Hint = hintForCode(refused.Code)
	case errors.As(err, &jobErr):
		f = cli.Failf(cli.ExitFailed, "%s", errorText(jobErr.Code, jobErr.Reason, jobName(jobErr.ID)))
		f.Hint = hintForCode(jobErr.Code)
	case errors.Is(err, gloom.ErrLost):
		code, reason, id := errorParts(err)
		f = cli.Failf(exitUnreachable, "%s", errorText(gloom.Code(code), reason, jobName(id))).
			SetHint("gloom ping shows whether the broker is back")
	case isUnreachable(err):
		f = cli.Failf(exitUnreachable, "%s", plainText(err))
		f.Hint = unreachableHint(err, "")
	default:
		f = cli.Failf(cli.ExitFailed, "%s", plainText(err))
	}
	return f
}

// unreachableFault returns the fault for a failure to reach any of the addresses.
func unreachableFault(addrs []string, flag string, err error) error {
	var refused *gloom.RefusedError
	switch {
	case err == nil || errors.As(err, &refused):
		return err
	case !isUnreachable(err): // about the options
		f := cli.Usagef("--%s: %s", flag, plainText(err))
		if strings.Contains(err.Error(), "want host:port") {
			f.Hint = "without --" + flag + " it is " + defaultAddr(flag)
		}
		return f
	}
	at := strings.Join(addrs, ", ")
	if at == "" {
		at = defaultAddr(flag)
	}
	return cli.Failf(exitUnreachable, "no broker reached at %s: %w", at, unreachableCause(connectionCause(err))).
		SetHint("%s", unreachableHint(err, " --"+flag+" names another address"))
}

// unreachableCause says why an address was not reached. It is an error of its own, so that ping can
// print it without the address.
type unreachableCause string

func (c unreachableCause) Error() string { return string(c) }

// defaultAddr returns the addresses that are tried if the flag is not given.
func defaultAddr(flag string) string {
	if flag == "worker-addr" {
		return wire.WorkerPort.Socket() + " or " + gloom.DefaultWorkerAddr
	}
	return wire.SubmitPort.Socket() + " or " + gloom.DefaultSubmitAddr
}

func refusalStatus(c gloom.Code) int {
	switch c {
	case gloom.ErrUnauthorized, gloom.ErrForbidden:
		return exitDenied
	case gloom.ErrInvalidValue, gloom.ErrInvalidType, gloom.ErrMissingField:
		return cli.ExitUsage // a value given for the job is wrong
	case gloom.ErrInvalidAction:
		return cli.ExitUsage // the address is that of another port
	}
	return cli.ExitFailed
}

// cliWords replaces what only programs need to know in the broker's reasons: second codes, and names of
// keys of a submit.
var cliWords = strings.NewReplacer("not_a_master: ", "", "not_a_slave: ", "",
	"its deadline (expires_ms)", "its deadline (--expires)")

// codesInReason are the codes whose reasons say all that they say.
var codesInReason = []gloom.Code{gloom.ErrUnknownID, gloom.ErrIDExists, gloom.ErrUnauthorized, gloom.ErrForbidden, gloom.ErrExpired, gloom.ErrDraining}

// errorText returns the text of a refusal or failure that the broker reported. subject names the
// thing that was refused or failed, such as a job, or is empty.
func errorText(code gloom.Code, reason, subject string) string {
	s := string(code)
	switch {
	case code == gloom.ErrInvalidAction && reason != "": // the reason and the hint say all
		return cliWords.Replace(reason)
	case code == gloom.ErrJobFailed:
		s = strings.TrimSpace(subject + " failed")
	case reason != "" && slices.Contains(codesInReason, code):
		s = subject
	case subject != "":
		s = subject + ": " + s
	}
	switch {
	case reason == "":
		return s
	case s == "":
		return cliWords.Replace(reason)
	}
	return s + ": " + cliWords.Replace(reason)
}

// jobName names the job with an id in messages, "" if the id is empty.
func jobName(id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("job %.200s", cli.QuoteName(id))
}

// hintForCode returns a hint that helps with a code, "" if there is none.
func hintForCode(c gloom.Code) string {
	switch c {
	case gloom.ErrUnauthorized:
		return "set a token that the broker knows: --token or GLOOM_TOKEN"
	case gloom.ErrForbidden:
		return "the token's line in the broker's token file lacks this scope or type"
	case gloom.ErrUnknownAction:
		return "the broker is older than this tool and does not know the request"
	case gloom.ErrInvalidAction:
		return "the addresses for submitters and for workers may be swapped (--submit-addr, --worker-addr)"
	case gloom.ErrDraining:
		return "the broker is stopping; with several addresses (--submit-addr A,B) gloom moves to another one"
	case gloom.ErrIDExists:
		return "gloom explain ID shows what holds the id, a job or a kept outcome; gloom cancel ID frees it"
	}
	return ""
}

// isUnreachable reports whether an error says that no broker could be reached.
func isUnreachable(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &cert) ||
		errors.As(err, &record) || errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "connect to ")
}

const notTLS = "leave out --tls or tls://"

// unreachableHint returns a hint for an error for which isUnreachable returns true. The hint ends with
// extra if the address may be wrong.
func unreachableHint(err error, extra string) string {
	var cert *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "is the name of the host right?" + extra
	case errors.As(err, &unknown):
		return "--tls-ca FILE names the authority that signed the broker's certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the broker needs another certificate, unless the clock of this host is wrong"
	case errors.As(err, &cert):
		return "the broker's certificate is not for this address; --tls-server-name says what it names"
	case errors.As(err, &record):
		return notTLS
	case strings.Contains(err.Error(), "remote error: tls: expired certificate"):
		return "the broker considers --tls-cert expired or not yet valid; its clock may be wrong"
	case strings.Contains(err.Error(), "remote error: tls:"):
		return "the broker may ask for a client certificate: --tls-cert and --tls-key"
	case strings.HasSuffix(err.Error(), "this is an HTTP server"):
		return "this may be the address for operators;" + cmp.Or(extra, " --submit-addr and --worker-addr name the others")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return "is gloomd running there?" + extra
	case errors.Is(err, io.EOF):
		return "does the broker need TLS (--tls)?" + extra
	}
	return "is gloomd running there, and does it speak TLS (--tls)?" + extra
}

// connectionCause returns why a connection failed, without the address.
func connectionCause(err error) string {
	for {
		switch e := err.(type) {
		case *gloom.LostError:
			err = e.Cause
			continue
		case *os.SyscallError:
			err = e.Err
			continue
		case *net.OpError:
			if e.Op != "remote error" {
				err = e.Err
				continue
			}
		case tls.RecordHeaderError:
			return "it does not speak TLS"
		case interface{ Unwrap() []error }: // it has an error for each address
			var reasons []string
			for _, x := range e.Unwrap() {
				if s := connectionCause(x); !slices.Contains(reasons, s) {
					reasons = append(reasons, s)
				}
			}
			return strings.Join(reasons, "; ")
		}
		if err == io.EOF {
			return "the broker closed the connection"
		}
		inner := errors.Unwrap(err)
		if inner == nil || !strings.Contains(err.Error(), "connect to ") {
			return plainText(err)
		}
		err = inner
	}
}

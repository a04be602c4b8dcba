package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gloom/bench/throwaway"
	"gloom/cmd/internal/cli"
)

// TestTLS: a client without a certificate is refused, jobs are pushed to workers whose certificates
// the system's authorities have signed, and SIGHUP reads new certificates.
func TestTLS(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, other} {
		if err := throwaway.WriteCerts(d); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	t.Setenv("SSL_CERT_FILE", file("ca.pem")) // the system's authorities
	flags := []string{"--tls-cert", file("server.pem"), "--tls-key", file("server.key"), "--tls-client-ca", file("ca.pem")}
	d := launch(t, flags...)
	plainURL := d.url
	d.url = strings.Replace(plainURL, "http:", "https:", 1)
	caller := func(ca, cert string) *http.Transport {
		conf, err := cli.ClientTLS("", filepath.Join(ca, "ca.pem"), filepath.Join(cert, "client.pem"), filepath.Join(cert, "client.key"), "")
		if err != nil {
			t.Fatal(err)
		}
		return &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}
	}
	c := d.client(t, jsonType)
	c.transport = caller(dir, dir)
	eventually(t, "jq-master takes jobs", func() bool { return c.do("GET", "/readyz", "").status == 200 })

	namelessCaller := caller(dir, dir)
	namelessCaller.TLSClientConfig.GetClientCertificate = nil
	for label, transport := range map[string]*http.Transport{"no certificate": namelessCaller, "another authority's": caller(dir, other)} {
		r, _ := http.NewRequest("GET", d.url+"/healthz", nil)
		if resp, err := transport.RoundTrip(r); err == nil {
			resp.Body.Close()
			t.Errorf("%s: %s", label, resp.Status)
		}
	}
	if resp, err := http.Get(plainURL + "/healthz"); err == nil {
		if resp.Body.Close(); resp.StatusCode == 200 {
			t.Error("it is served without TLS")
		}
	}
	check := exec.Command(os.Args[0], append([]string{"--healthcheck", "--addr", strings.TrimPrefix(plainURL, "http://")}, flags...)...)
	check.Env = append(os.Environ(), programVariable+"=1")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("--healthcheck: %v: %s", err, out)
	}

	// Jobs are pushed only to a worker that has a certificate of these authorities for this name.
	jobIDs := make(chan string, 1)
	serve := func(certs string) *httptest.Server {
		pair, err := tls.LoadX509KeyPair(filepath.Join(certs, "server.pem"), filepath.Join(certs, "server.key"))
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/worker-job" || r.Header.Get("Authorization") != "Bearer secret" || !bytes.Contains(body, []byte("greet")) {
				t.Errorf("pushed %s with %v", r.URL, r.Header)
			}
			w.WriteHeader(202)
			jobIDs <- r.Host
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	trusted, unknown := serve(dir), serve(other)
	job := c.enqueue(`{"name":"greet","argument":{},"keep_result":true}`)
	for url, reason := range map[string]string{
		unknown.URL: "unknown authority",
		strings.Replace(trusted.URL, "127.0.0.1", "localhost", 1): "localhost",
	} {
		worker := c.register(`{"name":"w","max_jobs":1,"token":"secret","url":"` + url + `"}`)
		eventually(t, "the job is not sent to "+url, func() bool {
			text := c.do("GET", "/v1/workers", "").wantStatus(200).text
			return strings.Contains(text, "certificate") && strings.Contains(text, reason)
		})
		c.do("DELETE", "/worker", "", "worker-id", worker).wantStatus(204)
	}
	c.do("GET", "/job/"+job, "").wantStatus(200).has(`{"status":"queued"}`)
	worker := c.register(`{"name":"w","max_jobs":1,"token":"secret","url":"` + trusted.URL + `"}`)
	<-jobIDs
	c.do("POST", "/done", `{"job_id":"`+job+`","type":"success","result":7}`, "worker-id", worker).wantStatus(204)
	c.do("GET", "/job/"+job+"/polling?timeout=60", "").wantStatus(200).has(`{"status":"done","result":7}`)

	// All certificates are replaced after SIGHUP.
	for _, name := range []string{"ca.pem", "server.pem", "server.key"} {
		data, err := os.ReadFile(filepath.Join(other, name))
		if err == nil {
			err = os.WriteFile(file(name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d.Signal(syscall.SIGHUP)
	freshTransport := caller(other, other)
	eventually(t, "the new certificates hold", func() bool {
		r, _ := http.NewRequest("GET", d.url+"/healthz", nil)
		resp, err := freshTransport.RoundTrip(r)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
}

// TestCertificateWarning: the log says once that the certificate has expired, also if the workers'
// address of the broker inside has the same certificate.
func TestCertificateWarning(t *testing.T) {
	dir := t.TempDir()
	if err := throwaway.WriteCerts(dir); err != nil {
		t.Fatal(err)
	}
	d := launch(t, "--tls-cert", filepath.Join(dir, "expired.pem"), "--tls-key", filepath.Join(dir, "expired.key"), "--worker-addr", "127.0.0.1:0")
	d.url = strings.Replace(d.url, "http:", "https:", 1)
	c := d.client(t, jsonType)
	c.transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	eventually(t, "jq-master takes jobs", func() bool { return c.do("GET", "/readyz", "").status == 200 })
	if n := strings.Count(d.Log.String(), "the TLS certificate expired"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, d.Log.String())
	}
}

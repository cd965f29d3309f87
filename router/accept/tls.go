package accept

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Certificate is a key pair in files that may change, as those of a mounted Secret do.
type Certificate struct {
	cert, key string
	log       zerolog.Logger
	reloaded  func(ok bool)

	mu      sync.Mutex
	current *tls.Certificate
	checked time.Time
	stamp   [2]time.Time
}

// checkEvery is how often handshakes look whether the files have changed.
const checkEvery = 10 * time.Second

// TLS makes the configuration for a listener: TLS 1.2 or newer and HTTP/1.1. mtls is off, optional or required. reloaded is told
// of every later reading of the files.
func TLS(cert, key, clientCA, mtls string, log zerolog.Logger, reloaded func(ok bool)) (*tls.Config, error) {
	c := &Certificate{cert: cert, key: key, log: log, reloaded: reloaded, checked: time.Now()}
	c.stamp = c.stamps()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
	}
	c.current = &pair
	out := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}
	if mtls == "off" {
		return out, nil
	}
	pem, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca-file: %w", err)
	}
	out.ClientCAs = x509.NewCertPool()
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-client-ca-file: %s holds no certificate", clientCA)
	}
	out.ClientAuth = tls.VerifyClientCertIfGiven
	if mtls == "required" {
		out.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return out, nil
}

// get returns the current pair, reading the files again when they have changed. A pair that cannot be read leaves the last one.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < checkEvery {
		return c.current, nil
	}
	c.checked = time.Now()
	stamp := c.stamps()
	if stamp == c.stamp {
		return c.current, nil
	}
	c.stamp = stamp
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	c.reloaded(err == nil)
	if err != nil {
		c.log.Error().Err(err).Msg("cannot read the new certificate; the old one stays")
		return c.current, nil
	}
	c.current = &pair
	return c.current, nil
}

func (c *Certificate) stamps() (t [2]time.Time) {
	for i, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

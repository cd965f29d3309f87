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

// tlsFiles are a key pair and the authorities of clients, in files that may change, as those of a mounted Secret do.
type tlsFiles struct {
	cert, key string
	clientCA  string // not read when auth wants no certificates
	auth      tls.ClientAuthType
	log       zerolog.Logger
	reloaded  func(ok bool)

	mu      sync.Mutex
	current *tls.Config
	checked time.Time
	stamp   [3]time.Time
}

// checkEvery is how often handshakes look whether the files have changed.
const checkEvery = 10 * time.Second

// clientAuth are the values of --mtls-mode.
var clientAuth = map[string]tls.ClientAuthType{
	"off": tls.NoClientCert, "optional": tls.VerifyClientCertIfGiven, "required": tls.RequireAndVerifyClientCert,
}

// TLS makes the configuration for a listener: TLS 1.2 or newer and HTTP/1.1. mtls is off, optional or required. reloaded is told
// of every later reading of the files.
func TLS(cert, key, clientCA, mtls string, log zerolog.Logger, reloaded func(ok bool)) (*tls.Config, error) {
	f := &tlsFiles{cert: cert, key: key, clientCA: clientCA, auth: clientAuth[mtls], log: log, reloaded: reloaded}
	f.checked, f.stamp = time.Now(), f.stamps()
	var err error
	if f.current, err = f.read(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: f.get}, nil
}

func (f *tlsFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}, ClientAuth: f.auth}
	if f.auth == tls.NoClientCert {
		return out, nil
	}
	pem, err := os.ReadFile(f.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca-file: %w", err)
	}
	out.ClientCAs = x509.NewCertPool()
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-client-ca-file: %s holds no certificate", f.clientCA)
	}
	return out, nil
}

// get returns the current configuration, reading the files again when they have changed. Files that cannot be used leave the
// last one.
func (f *tlsFiles) get(*tls.ClientHelloInfo) (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) < checkEvery {
		return f.current, nil
	}
	f.checked = time.Now()
	stamp := f.stamps()
	if stamp == f.stamp {
		return f.current, nil
	}
	f.stamp = stamp
	next, err := f.read()
	f.reloaded(err == nil)
	if err != nil {
		f.log.Error().Err(err).Msg("cannot use the new TLS files; the old ones stay")
		return f.current, nil
	}
	f.current = next
	return f.current, nil
}

func (f *tlsFiles) stamps() (t [3]time.Time) {
	for i, path := range []string{f.cert, f.key, f.clientCA} {
		if info, err := os.Stat(path); err == nil {
			t[i] = info.ModTime()
		}
	}
	return t
}

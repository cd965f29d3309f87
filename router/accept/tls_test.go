package accept

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTLSFilesAreReadAgain changes the files under a configuration. Between two steps it turns the clock of the checks and the
// time of the files, so that nothing has to wait.
func TestTLSFilesAreReadAgain(t *testing.T) {
	a := newAuthority(t)
	s := newSecret(t, a, "first")
	var reloads []bool
	f := &tlsFiles{
		cert: s.cert, key: s.key, clientCA: s.ca, auth: tls.RequireAndVerifyClientCert, log: zerolog.Nop(),
		reloaded: func(ok bool) { reloads = append(reloads, ok) },
	}
	f.stamp = f.stamps()
	var err error
	f.current, err = f.read()
	require.NoError(t, err)
	modified := time.Now()
	subject := func() string {
		t.Helper()
		cfg, err := f.get(nil)
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(cfg.Certificates[0].Certificate[0])
		require.NoError(t, err)
		return leaf.Subject.CommonName
	}
	change := func(write func()) {
		t.Helper()
		write()
		modified = modified.Add(time.Second)
		for _, path := range []string{s.cert, s.key, s.ca} {
			require.NoError(t, os.Chtimes(path, modified, modified))
		}
		f.checked = time.Time{}
	}

	assert.Equal(t, "first", subject())
	f.checked = time.Time{}
	assert.Equal(t, "first", subject())
	assert.Empty(t, reloads, "files that did not change are not read")

	change(func() { s.renew(t, a, "second") })
	f.checked = time.Now()
	assert.Equal(t, "first", subject(), "not every handshake looks at the files")
	f.checked = time.Time{}
	assert.Equal(t, "second", subject())
	assert.Equal(t, []bool{true}, reloads)

	cert, key, err := a.Sign("third")
	require.NoError(t, err)
	change(func() { require.NoError(t, os.WriteFile(s.cert, cert, 0o600)) })
	assert.Equal(t, "second", subject(), "half of a pair is not used")
	assert.Equal(t, "second", subject())
	assert.Equal(t, []bool{true, false}, reloads)
	change(func() { require.NoError(t, os.WriteFile(s.key, key, 0o600)) })
	assert.Equal(t, "third", subject())

	other := newAuthority(t)
	change(func() { require.NoError(t, os.WriteFile(s.ca, other.PEM(), 0o600)) })
	cfg, err := f.get(nil)
	require.NoError(t, err)
	assert.True(t, cfg.ClientCAs.Equal(other.Pool()), "the authorities of clients too")
	change(func() { require.NoError(t, os.WriteFile(s.ca, nil, 0o600)) })
	cfg, err = f.get(nil)
	require.NoError(t, err)
	assert.True(t, cfg.ClientCAs.Equal(other.Pool()))
	assert.Equal(t, []bool{true, false, true, true, false}, reloads)
}

//go:build linux

package main

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/dovakiin0/agent-sandbox/test/process.serveStarts"))
}

func TestSearch(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   float64 // what is sustained
		highest float64
		tried   []float64
	}{
		{"between", 17.5, 17, []float64{5, 10, 20, 15, 17, 18}},
		{"one of the list", 10, 10, []float64{5, 10, 20, 15, 12, 11}},
		{"below the list", 2, 2, []float64{5, 2, 3}},
		{"nothing", 0.5, 0, []float64{5, 2, 1}},
		{"all of the list", 41, 20, []float64{5, 10, 20}},
	} {
		var tried []float64
		highest, err := search([]float64{5, 10, 20}, func(rate float64) (bool, error) {
			tried = append(tried, rate)
			return rate <= c.limit, nil
		})
		require.NoError(t, err)
		assert.Equal(t, c.highest, highest, c.name)
		assert.Equal(t, c.tried, tried, c.name)
	}
	for _, failing := range []float64{10, 12} {
		_, err := search([]float64{5, 10, 15}, func(rate float64) (bool, error) {
			if rate == failing {
				return false, assert.AnError
			}
			return rate < 11, nil
		})
		assert.ErrorIs(t, err, assert.AnError)
	}
}

func TestArrivals(t *testing.T) {
	const rate, duration = 50.0, 200 * time.Second
	all := arrivals(rate, duration)
	assert.Equal(t, all, arrivals(rate, duration), "the same each time")
	assert.True(t, slices.IsSorted(all))
	assert.LessOrEqual(t, all[len(all)-1], duration)
	// The number of arrivals has a standard deviation of the root of its mean.
	mean := rate * duration.Seconds()
	assert.InDelta(t, mean, len(all), 4*math.Sqrt(mean))
	// So have the waiting times their mean, unlike those of a steady beat.
	var squares float64
	for i := 1; i < len(all); i++ {
		d := (all[i]-all[i-1]).Seconds()*rate - 1
		squares += d * d
	}
	assert.InDelta(t, 1, squares/float64(len(all)), 0.1)
}

func TestExpand(t *testing.T) {
	words, err := expand(" bin/x --health={health}  --a={metrics},{health} ", map[string]string{"{health}": "h:1", "{metrics}": "m:2"})
	require.NoError(t, err)
	assert.Equal(t, []string{"bin/x", "--health=h:1", "--a=m:2,h:1"}, words)
	_, err = expand("  ", nil)
	assert.Error(t, err)
}

func TestFlags(t *testing.T) {
	s, err := parse([]string{"--scenarios=fill,singles", "--rates=3,7.5", "--scale=0.01", "--router="}, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Equal(t, []string{"fill", "singles"}, []string{s.scenarios[0].name, s.scenarios[1].name})
	assert.Equal(t, rateList{3, 7.5}, s.rates)
	assert.Equal(t, "3,7.5", s.rates.String())
	assert.Equal(t, 5, s.size(500))
	assert.Equal(t, 1, s.size(40), "never nothing")
	assert.Empty(t, s.router)
	for _, wrong := range [][]string{
		{"--scenarios=nothing"}, {"--rates=5,5"}, {"--rates=0"}, {"--rates=x"}, {"--rounds=0"}, {"--scale=0"}, {"--controller="}, {"word"},
	} {
		_, err := parse(wrong, &bytes.Buffer{})
		assert.Error(t, err, wrong)
	}
}

func TestItMeasures(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	var table, progress bytes.Buffer
	out := filepath.Join(t.TempDir(), "new", "claims.json")
	err := run(t.Context(), []string{
		"--scenarios=singles,poisson,idle", "--scale=0.01", "--rates=1", "--arrivals=2s", "--window=1s", "--out=" + out,
	}, &table, &progress)
	require.NoError(t, err, "%s", progress.String())
	assert.FileExists(t, out)
	for _, want := range []string{"singles", "poisson 1/s", "idle", "singles, writes for each claim: ", "update sandboxclaims/status"} {
		assert.Contains(t, table.String(), want)
	}
}

func TestAControllerThatEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	err := run(t.Context(), []string{
		"--scenarios=fill", "--scale=0.01", "--router=", "--controller=echo some last words", "--out=" + filepath.Join(t.TempDir(), "claims.json"),
	}, &bytes.Buffer{}, &bytes.Buffer{})
	require.Error(t, err)
	assert.ErrorContains(t, err, "the controller ended; it wrote:\nsome last words")
	assert.False(t, errors.Is(err, t.Context().Err()))
}

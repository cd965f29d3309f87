package route
import ("testing";"strconv";"sync/atomic")
type mk struct{ns,name string}
func BenchmarkXCompare(b *testing.B){
 for _, n := range []int{1000,100_000} {
  table, names := benchTable(n), benchNames(n)
  var shards [256]atomic.Pointer[map[mk]*Sandbox[*payload]]
  for i:=range shards { m:=map[mk]*Sandbox[*payload]{}; shards[i].Store(&m) }
  sh:=func(name []byte) int { h:=uint32(2166136261); for _,c:=range name { h=(h^uint32(c))*16777619 }; return int(h&255) }
  table.Walk(func(s *Sandbox[*payload]) bool { (*shards[sh([]byte(s.Name))].Load())[mk{s.Namespace,s.Name}]=s; return true })
  ns:=[]byte("tenant")
  for range 3 {
  b.Run("map/"+strconv.Itoa(n), func(b *testing.B){
   for i:=0;b.Loop();i++ { name:=names[i%len(names)]
    s:=(*shards[sh(name)].Load())[mk{string(ns),string(name)}]
    if s==nil || s.verdict!=Routable || s.pick(Query{}.Hint).Endpoint==nil { b.Fatal() } }
  })
  b.Run("index/"+strconv.Itoa(n), func(b *testing.B){
   q:=Query{Namespace:ns}
   for i:=0;b.Loop();i++ { q.Name=names[i%len(names)]
    if table.Find(&q).Verdict!=Routable { b.Fatal() } }
  })}
 }
}

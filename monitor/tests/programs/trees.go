// Trees, maps, garbage and recovered null dereferences in goroutines; prints sums, exits 5.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
)

type node struct {
	left, right *node
	key         int
}

func (n *node) insert(key int) *node {
	if n == nil {
		return &node{key: key}
	}
	if key < n.key {
		n.left = n.left.insert(key)
	} else {
		n.right = n.right.insert(key)
	}
	return n
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.key + n.left.sum() + n.right.sum()
}

func work(id, n int) (total int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("caught %v", r)
		}
	}()
	var root *node
	x := id*7919 + 1
	for i := 0; i < n; i++ {
		x = (x*1103515245 + 12345) & 0x7fffffff
		root = root.insert(x)
	}
	total = root.sum()
	m := map[string]int{}
	for i := 0; i < n; i++ {
		m[fmt.Sprintf("k%d", i%997)] += i
	}
	for _, v := range m {
		total += v
	}
	if id%2 == 1 {
		var none *node
		total += none.key // SIGSEGV, a panic, recovered
	}
	return
}

func main() {
	n := 20000
	if len(os.Args) > 1 {
		fmt.Sscan(os.Args[1], &n)
	}
	var wg sync.WaitGroup
	results := make([]string, 8)
	ch := make(chan int)
	for id := range results {
		wg.Add(1)
		go func(id int) {
			defer wg.Done()
			total, err := work(id, n)
			results[id] = fmt.Sprint(id, total, err)
			ch <- total
		}(id)
	}
	go func() { wg.Wait(); close(ch) }()
	all := 0
	for t := range ch {
		all += t
		runtime.GC()
	}
	sort.Strings(results)
	fmt.Println(strings.Join(results, "\n"), all)
	os.Exit(5)
}

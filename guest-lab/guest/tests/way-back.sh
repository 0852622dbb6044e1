# kill -9 of the owner, then of everything: the guardian, or restore, gives all back.
load hog at1 0 - other 300 & a=$!
load hog at2 0 - other 300 & b=$!
load sleeper at3 0 - other 300 500 3000 & c=$!
sleep 0.3
managed() { [ "$(task show 'at?' | grep -cE 'policy [12] ')" -gt 0 ]; }
given_back() { ! managed; }

schedlab attach --scheduler rr --cpus 1-3 --pid $a,$b,$c --for 100s >owner.txt 2>&1 &
owner=$!
check "the threads are managed" wait_for 20 managed
check "huge pages stay away from the owner and its guardians" all_without_huge_pages
kill -9 $owner
check "the owner is killed: the guardian gives back" wait_for 20 given_back
check "... and nothing else is left changed" wait_for 5 none_changed

schedlab attach --scheduler rr --cpus 1-3 --pid $a,$b,$c --for 100s >all.txt 2>&1 &
check "the threads are managed again" wait_for 20 managed
killall -9 schedlab
sleep 1
run schedlab restore
check "all is killed: restore gives back" wait_for 5 given_back
check "... and nothing else is left changed" wait_for 5 none_changed
run schedlab status

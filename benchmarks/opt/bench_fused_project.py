def main(a): return 0
def backward(*a): return []

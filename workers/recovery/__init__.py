"""What puts right what crashes left behind."""

"""What is built of transactions: nothing here knows more than the public interface."""
